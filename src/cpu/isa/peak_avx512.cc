// SPDX-License-Identifier: Apache-2.0
// 16-wide f32 FMAs on registers alone.
#include <immintrin.h>

#include "cpu/isa/peak.h"

namespace routerelay::cpu {

int64_t peak_avx512(int64_t iterations) {
  constexpr int kSums = 24;  // as many as the tile has
  __m512 x[kSums];
  for (int r = 0; r < kSums; ++r) x[r] = _mm512_set1_ps(static_cast<float>(r));
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1e-3f);
  for (int64_t i = 0; i < iterations; ++i)
#pragma GCC unroll 24
    for (int r = 0; r < kSums; ++r) x[r] = _mm512_fmadd_ps(x[r], a, b);
#pragma GCC unroll 24
  for (int r = 0; r < kSums; ++r) __asm__ volatile("" : : "v"(x[r]));  // the sums are wanted
  return iterations * kSums * 16 * 2;
}

}  // namespace routerelay::cpu
