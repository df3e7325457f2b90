// SPDX-License-Identifier: Apache-2.0
// What precedes every timing of bench cuda-attend: its last run against float64.
#pragma once

#include "bench/cuda/problem.h"

namespace routerelay::bench {

// A query each of the first rows, a middle one and the last, of a few heads, in three sequences at most.
Status check_last_run(const CudaProblem& problem);

}  // namespace routerelay::bench
