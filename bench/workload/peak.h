// SPDX-License-Identifier: Apache-2.0
// The measured ceiling of a machine, for the benchmarks that state their share of it.
#pragma once

#include "core/exec.h"

namespace routerelay::bench {

// FLOP/s * 1e-9 of one round of the ISA's register-resident loop on every thread of the pool, about `seconds` long.
double measure_peak_gflops(ThreadPool& pool, Isa isa, double seconds);

// The ISAs to measure: named ones, which must exist here, or all that this machine has.
Result<std::vector<Isa>> isas_from(const std::vector<std::string>& names);
// The dtypes named, or all three.
Result<std::vector<DType>> dtypes_from(const std::vector<std::string>& names);
// 0 means every core.
int threads_from(int threads);

}  // namespace routerelay::bench
