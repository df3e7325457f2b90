// SPDX-License-Identifier: Apache-2.0
// 8-wide f32 FMAs on registers alone.
#include <immintrin.h>

#include "cpu/isa/peak.h"

namespace routerelay::cpu {

int64_t peak_avx2(int64_t iterations) {
  constexpr int kSums = 12;  // covers the latency of an FMA (4 or 5) on two ports
  __m256 x[kSums];
  for (int r = 0; r < kSums; ++r) x[r] = _mm256_set1_ps(static_cast<float>(r));
  __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < iterations; ++i)
#pragma GCC unroll 12
    for (int r = 0; r < kSums; ++r) x[r] = _mm256_fmadd_ps(x[r], a, b);
#pragma GCC unroll 12
  for (int r = 0; r < kSums; ++r) __asm__ volatile("" : : "x"(x[r]));  // the sums are wanted
  return iterations * kSums * 8 * 2;
}

}  // namespace routerelay::cpu
