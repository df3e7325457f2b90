// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this machine runs. The public names are in routerelay/engine.hpp.
#pragma once

#include "routerelay/engine.hpp"

namespace routerelay {

Isa best_isa();
const char* why_best_isa();  // in a few words, for people
bool isa_available(Isa isa);

}  // namespace routerelay
