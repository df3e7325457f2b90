// SPDX-License-Identifier: Apache-2.0
// What the bf16 tiles share: packing into pairs (VNNI), the softmax whose p is bf16, and the row ends.
#pragma once

#include "cpu/isa/vec_avx512.h"

namespace routerelay::cpu {
namespace {

// Packed rows and panels hold kParts bf16 per element: [M][kParts][pitch / kParts] rows, kParts panels one behind the
// other. The second part is what the first one's rounding lost.
template <int kStep, int kParts>
struct Bf16Packing {
  using Elem = uint16_t;
  static constexpr int kRowStep = kStep;
  static constexpr int kLanes = SoftmaxRow512::kLanes;
  // Rows and key panels end on a whole tile of 32: AMX has no shorter one without another configuration.
  static constexpr int pitch(int D) { return (D + 31) / 32 * 32 * kParts; }
  static constexpr int value_size(int D) { return kPanel * D * kParts; }

  static void pack_keys(const std::byte* k, DType dtype, int64_t token_stride, int n, int D, uint16_t* out) {
    with_dtype(dtype, [&]<DType kType>() {
      pack_key_part<kType, 0>(k, token_stride, n, D, out);
      if constexpr (kParts == 2) pack_key_part<kType, 1>(k, token_stride, n, D, out + kPanel * pitch(D) / 2);
    });
  }

  static bool pack_values(const std::byte* v, DType dtype, int64_t token_stride, int n, int D,
                          uint16_t* out) {
    return with_dtype(dtype, [&]<DType kType>() {
      const bool finite = pack_value_part<kType, 0>(v, token_stride, n, D, out);
      if constexpr (kParts == 2) pack_value_part<kType, 1>(v, token_stride, n, D, out + kPanel * D);
      return finite;
    });
  }

  static void clear_value(uint16_t* panel, int D, int key) {
    for (int part = 0; part < kParts; ++part, panel += kPanel * D)
      for (int d = 0; d < D; ++d) panel[(key / 2 * D + d) * 2 + key % 2] = 0;
  }

  // The rows that fill M up to kRowStep are zero.
  static void pack_rows(const std::byte* q, DType dtype, int64_t token_stride, int M, int D, float factor,
                        uint16_t* out) {
    with_dtype(dtype, [&]<DType kType>() {
      const __m512 scale = _mm512_set1_ps(factor);
      const int64_t step = bytes_of(kType, token_stride);
      const int width = pitch(D) / kParts;
      for (int i = 0; i < round_up(M, kRowStep); ++i)
        for (int d = 0; d < width; d += 16) {
          const bool inside = i < M && d < D;
          const __m512 x = inside ? load16<kType>(q + i * step, d) : _mm512_setzero_ps();
          const __m512 scaled = _mm512_mul_ps(x, scale);
          auto* at = reinterpret_cast<__m256i*>(out + i * pitch(D) + d);
          _mm256_store_si256(at, round<0>(scaled));
          if constexpr (kParts == 2) _mm256_store_si256(at + width / 16, round<1>(scaled));
        }
    });
  }

  static void softmax(const float* s, int M, float factor, uint16_t* p, float* max, float* sum, float* acc,
                      int D, [[maybe_unused]] Ahead* ahead = nullptr) {
    const float slack = in_scores(kMaxSlack, factor);
    const __m512 scale = _mm512_set1_ps(factor);
    for (int i = 0; i < M; ++i) {
      if constexpr (kRowStep > 1) {
        // AMX's products load whole tiles and leave no gaps for prefetches; here there are some. The sums of 16 rows
        // come back from L2, because the rows between took their place.
        for (int d = 0; d < D; d += 16) _mm_prefetch(acc + i * D + d, _MM_HINT_T0);
        if (const std::byte* lines = Ahead::take(ahead, ahead == nullptr ? 0 : ahead->per_row))
          for (int x = 0; x < ahead->per_row; ++x) _mm_prefetch(lines + x * 64, _MM_HINT_T1);
      }
      const float* row = s + i * kPanel;
      __m512 x[4] = {_mm512_load_ps(row), _mm512_load_ps(row + 16), _mm512_load_ps(row + 32),
                     _mm512_load_ps(row + 48)};
      if (SoftmaxRow512::passes(x, max[i] + slack))
        SoftmaxRow512::rescale(row, factor, max + i, sum + i * kLanes, acc + i * D, D);
      const __m512 shift = SoftmaxRow512::shift_of(max[i], factor, x);
      __m512 y[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) y[j] = exp2<4>(_mm512_fmsub_ps(x[j], scale, shift));
      _mm512_store_si512(p + i * kPanel, (__m512i)_mm512_cvtne2ps_pbh(y[1], y[0]));
      _mm512_store_si512(p + i * kPanel + 32, (__m512i)_mm512_cvtne2ps_pbh(y[3], y[2]));
      const __m512 total = _mm512_add_ps(_mm512_add_ps(y[0], y[1]), _mm512_add_ps(y[2], y[3]));
      _mm512_store_ps(sum + i * kLanes, _mm512_add_ps(_mm512_load_ps(sum + i * kLanes), total));
    }
  }

  static void finish(const float* acc, float max, const float* sum, int D, std::byte* out, DType dtype,
                     float* lse) {
    SoftmaxRow512::finish(acc, max, sum, D, out, dtype, lse);
  }

 private:
  // Part 0: x as bf16. Part 1: what part 0 lost, as bf16, and nothing where part 0 is infinite or NaN.
  template <int kPart>
  static __m256i round(__m512 x) {
    const auto high = (__m256i)_mm512_cvtneps_pbh(x);
    if constexpr (kPart == 0) return high;
    const __m512 lost =
        _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
    return (__m256i)_mm512_maskz_cvtneps_pbh(_mm512_cmp_ps_mask(lost, lost, _CMP_ORD_Q), lost);
  }

  // 16 keys x 16 pairs of head_dim at a time: a pair is one 32-bit element of the transpose.
  template <DType kType, int kPart>
  static void pack_key_part(const std::byte* k, int64_t token_stride, int n, int D, uint16_t* out) {
    const int64_t step = bytes_of(kType, token_stride);
    for (int j = 0; j < kPanel; j += 16)
      for (int d = 0; d < D; d += 32) {
        __m512i r[16];
        for (int i = 0; i < 16; ++i)
          r[i] = j + i < n ? load32<kType, kPart>(k + (j + i) * step, d, D) : _mm512_setzero_si512();
        transpose16(r);
        for (int i = 0; i < 16; ++i) _mm512_store_si512(out + ((d / 2 + i) * kPanel + j) * 2, r[i]);
      }
  }

  // False when a packed value is NaN or infinite.
  template <DType kType, int kPart>
  static bool pack_value_part(const std::byte* v, int64_t token_stride, int n, int D, uint16_t* out) {
    const int64_t step = bytes_of(kType, token_stride);
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 bad = 0;
    for (int j = 0; j < kPanel; j += 2)
      for (int d = 0; d < D; d += 16) {
        const std::byte* even = v + j * step;
        const __m512i low = j < n ? load16_u32<kType, kPart>(even, d) : _mm512_setzero_si512();
        const __m512i high = j + 1 < n ? load16_u32<kType, kPart>(even + step, d) : _mm512_setzero_si512();
        const __m512i pairs = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(pairs, exponent), exponent);
        _mm512_store_si512(out + (j / 2 * D + d) * 2, pairs);
      }
    return bad == 0;
  }

  // A part of elements d to d + 31 of a row, those from D on zero; D is a multiple of 16.
  template <DType kType, int kPart>
  static __m512i load32(const std::byte* row, int d, int D) {
    const bool whole = D - d >= 32;
    if constexpr (kType == DType::kBF16 && kPart == 0)
      return _mm512_maskz_loadu_epi16(whole ? ~__mmask32{0} : 0xffffu, row + bytes_of(kType, d));
    const __m512 low = load16<kType>(row, d);
    const __m512 high = whole ? load16<kType>(row, d + 16) : _mm512_setzero_ps();
    return _mm512_inserti64x4(_mm512_castsi256_si512(round<kPart>(low)), round<kPart>(high), 1);
  }

  // A part of elements d to d + 15 of a row, each in the low half of a 32-bit element.
  template <DType kType, int kPart>
  static __m512i load16_u32(const std::byte* row, int d) {
    if constexpr (kType == DType::kBF16 && kPart == 0)
      return _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + bytes_of(kType, d))));
    return _mm512_cvtepu16_epi32(round<kPart>(load16<kType>(row, d)));
  }
};

}  // namespace
}  // namespace routerelay::cpu
