// SPDX-License-Identifier: Apache-2.0
// What the AVX2 tile is made of: converting loads and stores, an 8 x 8 transpose, exp2, reductions.
#pragma once

#include <immintrin.h>

#include "cpu/isa/tile.h"

namespace routerelay::cpu {
namespace {

// Elements d to d + 7 of a row, d a multiple of 8: none of these lies across two blocks of q8_0.
template <DType kType>
__m256 load8(const std::byte* row, int64_t d) {
  if constexpr (kType == DType::kQ8_0) {
    const std::byte* block = row + d / kQ8Elements * kQ8Bytes;
    int16_t bits;
    __builtin_memcpy(&bits, block, sizeof(bits));
    const __m128i steps = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + 2 + d % kQ8Elements));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(steps)),
                         _mm256_cvtph_ps(_mm_set1_epi16(bits)));
  }
  const std::byte* p = row + bytes_of(kType, d);
  if constexpr (kType == DType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if constexpr (kType == DType::kF16) return _mm256_cvtph_ps(half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// To nearest, ties to even; NaN stays NaN: the integer form of core/convert.h.
__m128i to_bf16x8(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256i result = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan)), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
}

void store8(std::byte* p, DType dtype, __m256 x) {
  if (dtype == DType::kF32) return _mm256_storeu_ps(reinterpret_cast<float*>(p), x);
  const __m128i half = dtype == DType::kBF16
                           ? to_bf16x8(x)
                           : _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), half);
}

void transpose8(__m256 r[8]) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  // r[4 g + c] now holds, in 128-bit lane l, column 4 l + c of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x20);
    t[4 + c] = _mm256_permute2f128_ps(r[c], r[4 + c], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

// 2^(x * factor), exactly 0 for x below floor, which is kExp2Floor / factor; NaN for NaN. x * factor at most kMaxSlack
// or so: no overflow is caught. The factor costs nothing: it rides on the two additions.
__m256 exp2(__m256 x, __m256 factor = _mm256_set1_ps(1.0f), __m256 floor = _mm256_set1_ps(kExp2Floor)) {
  const __m256 magic = _mm256_set1_ps(kRoundMagic);
  const __m256 keep = _mm256_cmp_ps(x, floor, _CMP_NLT_UQ);
  const __m256 shifted = _mm256_fmadd_ps(x, factor, magic);
  const __m256 f = _mm256_fmsub_ps(x, factor, _mm256_sub_ps(shifted, magic));
  __m256 y = _mm256_set1_ps(kExp2Degree5[5]);
#pragma GCC unroll 5
  for (int i = 4; i >= 0; --i) y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(kExp2Degree5[i]));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_and_ps(keep, _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent)));
}

float reduce_max(__m256 x) {
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

float reduce_add(__m256 x) {
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

}  // namespace
}  // namespace routerelay::cpu
