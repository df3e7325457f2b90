// SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/peak.h"

namespace routerelay::cpu {

int64_t peak_scalar(int64_t iterations) {
  typedef float Vector __attribute__((vector_size(16)));
  constexpr int kSums = 12;  // of 16 registers: covers the latency of an add (4) on two ports
  Vector x[kSums];
  for (int r = 0; r < kSums; ++r) x[r] = Vector{} + static_cast<float>(r);
  Vector a = Vector{} + 0.5f, b = Vector{} + 1e-3f;
  for (int64_t i = 0; i < iterations; ++i)
#pragma GCC unroll 12
    for (int r = 0; r < kSums; ++r) x[r] = x[r] * a + b;
#pragma GCC unroll 12
  for (int r = 0; r < kSums; ++r) __asm__ volatile("" : : "x"(x[r]));  // the sums are wanted
  return iterations * kSums * 4 * 2;
}

}  // namespace routerelay::cpu
