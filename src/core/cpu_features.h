// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this machine runs. The public names are in routerelay/engine.hpp.
#pragma once

#include "routerelay/engine.hpp"

namespace routerelay {

Isa best_isa();
bool isa_available(Isa isa);

}  // namespace routerelay
