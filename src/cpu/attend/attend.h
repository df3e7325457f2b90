// SPDX-License-Identifier: Apache-2.0
// q, k, v, routes -> out, lse_log2 on the CPU: softmax over the keys of the visited blocks, exact in f32 or bf16
// products with f32 sums, whatever ISA exec names.
#pragma once

#include "core/stages.h"

namespace routerelay::cpu {

// Same bits for a row whatever the threads, the batch mates and the other heads. kUnsupported when this build has no
// kernel for (exec.isa, head_dim), kOutOfMemory when the workspace cannot be had.
Status attend(const AttendArgs& args, Exec& exec);

}  // namespace routerelay::cpu
