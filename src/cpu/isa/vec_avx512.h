// SPDX-License-Identifier: Apache-2.0
// What the AVX-512 tiles share: converting loads and stores, a 16 x 16 transpose, exp2, and the softmax's row
// ends.
#pragma once

#include <immintrin.h>

#include "cpu/isa/tile.h"

namespace routerelay::cpu {
namespace {

// Elements d to d + 15 of a row, d a multiple of 16: none of these lies across two blocks of q8_0.
template <DType kType>
__m512 load16(const std::byte* row, int64_t d) {
  if constexpr (kType == DType::kQ8_0) {
    const std::byte* block = row + d / kQ8Elements * kQ8Bytes;
    int16_t bits;
    __builtin_memcpy(&bits, block, sizeof(bits));
    const __m128i steps = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2 + d % kQ8Elements));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(steps)),
                         _mm512_cvtph_ps(_mm256_set1_epi16(bits)));
  }
  const std::byte* p = row + bytes_of(kType, d);
  if constexpr (kType == DType::kF32) return _mm512_loadu_ps(p);
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if constexpr (kType == DType::kF16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// To nearest, ties to even; NaN stays NaN. Without AVX512_BF16 this is the integer form of core/convert.h.
__m256i to_bf16(__m512 x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16));
}

void store16(std::byte* p, DType dtype, __m512 x) {
  if (dtype == DType::kF32) return _mm512_storeu_ps(p, x);
  const __m256i half =
      dtype == DType::kBF16 ? to_bf16(x) : _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
}

// Rows become columns, 32-bit elements, in four rounds of 16 shuffles.
void transpose16(__m512i r[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  // r[4 g + c] now holds, in 128-bit lane l, column 4 l + c of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                  b = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i x = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88),
                  y = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a, x, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, x, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(b, y, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(b, y, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// 2^f for f in [0, 1), minimax in the relative error, the constant set to 1 so that exp2(0) is exactly 1: degree 5 errs
// by 1.6e-7; degree 4, where weights are rounded to bf16, by 3.0e-6, which keeps the LSE as good as f32's; degree 3,
// for routers over bf16 products, whose scores are off by 2e-3 of themselves, by 8.6e-5.
constexpr float kFraction5[6] = {1.0f,           0x1.62e4bap-1f, 0x1.ebdb56p-3f,
                                 0x1.c91ce6p-5f, 0x1.277854p-7f, 0x1.e974fep-10f};
constexpr float kFraction4[5] = {1.0f, 0x1.62d6c6p-1f, 0x1.ee2452p-3f, 0x1.abf868p-5f, 0x1.b7f734p-7f};
constexpr float kFraction3[4] = {1.0f, 0x1.63e65ap-1f, 0x1.d23788p-3f, 0x1.3baaaap-4f};

// 2^x, exactly 0 below kExp2Floor: a denormal result would cost a hundred cycles. NaN for NaN.
template <int kDegree>
__m512 exp2(__m512 x) {
  static_assert(kDegree >= 3 && kDegree <= 5);
  constexpr int kFloor = 1;  // rounding mode of vreduceps
  const float* c = kDegree == 5 ? kFraction5 : kDegree == 4 ? kFraction4 : kFraction3;
  const __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExp2Floor), _CMP_NLT_UQ);
  const __m512 f = _mm512_reduce_ps(x, kFloor);
  __m512 y = _mm512_set1_ps(c[kDegree]);
#pragma GCC unroll 5
  for (int i = kDegree - 1; i >= 0; --i) y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(c[i]));
  return _mm512_maskz_scalef_ps(keep, y, x);
}

// What one row of the softmax needs besides its 64 scores, and how it changes when the maximum moves.
struct SoftmaxRow512 {
  static constexpr int kLanes = 16;

  // Whether a score passes limit. An unordered comparison is false, so NaN never becomes the maximum.
  static bool passes(const __m512 s[4], float limit_of_all) {
    const __m512 limit = _mm512_set1_ps(limit_of_all);
    const __m512 top = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
    return _mm512_cmp_ps_mask(top, limit, _CMP_GT_OQ) != 0;
  }

  // What to subtract from s * factor: the maximum's product or, once that is no longer exact enough, nothing, and s
  // comes back without the maximum. Nor is -inf subtracted, the maximum of a row without a visible key so far: NaN.
  static __m512 shift_of(float max, float factor, __m512 s[4]) {
    const float shift = max * factor;
    if (__builtin_fabsf(shift) < kExactShift) return _mm512_set1_ps(shift);
    if (max != -__builtin_inff())
      for (int j = 0; j < 4; ++j) s[j] = _mm512_sub_ps(s[j], _mm512_set1_ps(max));
    return _mm512_setzero_ps();
  }

  [[gnu::noinline]] static void rescale(const float* s, float factor, float* max, float* sum, float* acc,
                                        int D) {
    const float top = row_max(s, kPanel), before = *max;
    *max = top;
    if (before == -__builtin_inff()) return;  // nothing was summed yet
    const __m512 shrink = exp2<5>(_mm512_set1_ps((before - top) * factor));
    _mm512_storeu_ps(sum, _mm512_mul_ps(_mm512_loadu_ps(sum), shrink));
    for (int d = 0; d < D; d += 16)
      _mm512_storeu_ps(acc + d, _mm512_mul_ps(_mm512_loadu_ps(acc + d), shrink));
  }

  static float row_max(const float* s, int64_t n) {
    __m512 top = _mm512_set1_ps(-__builtin_inff());
    // The second operand survives a NaN in the first: the running maximum stays.
    for (int64_t j = 0; j < n; j += 16) top = _mm512_max_ps(_mm512_loadu_ps(s + j), top);
    return _mm512_reduce_max_ps(top);
  }

  static void exp2_sums(float* s, int64_t n, float max, float* sums) {
    const __m512 shift = _mm512_set1_ps(max == -__builtin_inff() ? 0.0f : max);
    for (int64_t b = 0; b < n; ++b) {
      __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int j = 0; j < kPanel; j += 16) {
        const __m512 y = exp2<5>(_mm512_sub_ps(_mm512_loadu_ps(s + b * kPanel + j), shift));
        _mm512_storeu_ps(s + b * kPanel + j, y);
        total = _mm512_add_ps(total, y);
      }
      sums[b] = _mm512_reduce_add_ps(total);
    }
  }

  static void finish(const float* acc, float max, const float* sum, int D, std::byte* out, DType dtype,
                     float* lse) {
    const float total = _mm512_reduce_add_ps(_mm512_loadu_ps(sum));
    const __m512 inverse = _mm512_set1_ps(total == 0.0f ? 0.0f : 1.0f / total);
    for (int d = 0; d < D; d += 16)
      store16(out + bytes_of(dtype, d), dtype, _mm512_mul_ps(_mm512_loadu_ps(acc + d), inverse));
    if (lse != nullptr) *lse = total == 0.0f ? -__builtin_inff() : max + __builtin_log2f(total);
  }
};

}  // namespace
}  // namespace routerelay::cpu
