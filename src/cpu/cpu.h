// SPDX-License-Identifier: Apache-2.0
// The CPU back end: the four stages by kernels for the ISA that the Exec names.
#pragma once

#include "core/stages.h"

namespace routerelay::cpu {

// Named "cpu".
const Stages& stages();

}  // namespace routerelay::cpu
