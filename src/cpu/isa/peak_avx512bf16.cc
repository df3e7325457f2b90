// SPDX-License-Identifier: Apache-2.0
// vdpbf16ps on registers alone: 32 bf16 products into 16 f32 sums.
#include <immintrin.h>

#include "cpu/isa/peak.h"

namespace routerelay::cpu {

int64_t peak_avx512bf16(int64_t iterations) {
  constexpr int kSums = 24;  // as many as the tile has
  __m512 x[kSums];
  for (int r = 0; r < kSums; ++r) x[r] = _mm512_set1_ps(static_cast<float>(r));
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3a80);
  for (int64_t i = 0; i < iterations; ++i)
#pragma GCC unroll 24
    for (int r = 0; r < kSums; ++r) x[r] = _mm512_dpbf16_ps(x[r], a, b);
#pragma GCC unroll 24
  for (int r = 0; r < kSums; ++r) __asm__ volatile("" : : "v"(x[r]));  // the sums are wanted
  return iterations * kSums * 32 * 2;
}

}  // namespace routerelay::cpu
