// SPDX-License-Identifier: Apache-2.0
// The same in registers of AVX-512: one pass over the scores, nothing written but the sums.
#pragma once

#include "cpu/isa/vec_avx512.h"
#include "cpu/route/block_sums.h"

namespace routerelay::cpu {
namespace {

template <int kDegree>
struct BlockSums512 {
  static void append(const float* s, const PanelShape& shape, VectorSums v) {
    if (shape.panels_per_slot == 1)
      append<1>(s, shape.blocks_per_slot, v);
    else
      append<2>(s, 1, v);
  }

 private:
  template <int kPanels>
  static void append(const float* s, int n_blocks, VectorSums v) {
    constexpr int N = kPanels * 4;
    __m512 x[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) x[i] = _mm512_load_ps(s + i * 16);
    // An unordered comparison is false, so NaN never becomes the shift.
    __m512 top = x[0];
#pragma GCC unroll 8
    for (int i = 1; i < N; ++i) top = _mm512_max_ps(x[i], top);
    const __m512 limit = _mm512_set1_ps(*v.shift + kMaxSlack);
    if (_mm512_cmp_ps_mask(top, limit, _CMP_GT_OQ) != 0) follow(s, N, v);
    const __m512 shift = _mm512_set1_ps(v.subtrahend());
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) x[i] = exp2<kDegree>(_mm512_sub_ps(x[i], shift));
    float* sums = v.sums + v.n;
    if constexpr (kPanels == 1)
      if (n_blocks > 1) return add_blocks(x, n_blocks, sums);
    __m512 total = _mm512_add_ps(_mm512_add_ps(x[0], x[1]), _mm512_add_ps(x[2], x[3]));
    if constexpr (kPanels == 2)
      total = _mm512_add_ps(total, _mm512_add_ps(_mm512_add_ps(x[4], x[5]), _mm512_add_ps(x[6], x[7])));
    *sums = _mm512_reduce_add_ps(total);
  }

  [[gnu::noinline]] static void follow(const float* s, int n, VectorSums v) {
    __m512 top = _mm512_set1_ps(-__builtin_inff());
    for (int i = 0; i < n; ++i) top = _mm512_max_ps(_mm512_load_ps(s + i * 16), top);  // never NaN
    v.follow(_mm512_reduce_max_ps(top));
  }

  // Element j of x belongs to block j % n_blocks.
  static void add_blocks(const __m512 x[4], int n_blocks, float* sums) {
    if (n_blocks <= 16) {
      const __m512 total = _mm512_add_ps(_mm512_add_ps(x[0], x[1]), _mm512_add_ps(x[2], x[3]));
      if (n_blocks == 16) return _mm512_storeu_ps(sums, total);
      const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(total), _mm512_extractf32x8_ps(total, 1));
      if (n_blocks == 8) return _mm256_storeu_ps(sums, half);
      const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
      if (n_blocks == 4) return _mm_storeu_ps(sums, quarter);
      _mm_storel_pi(reinterpret_cast<__m64*>(sums), _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter)));
      return;
    }
    const int step = n_blocks / 16;  // 2 or 4 vectors of blocks
    for (int i = 0; i < step; ++i)
      _mm512_storeu_ps(sums + i * 16, step == 2 ? _mm512_add_ps(x[i], x[i + 2]) : x[i]);
  }
};

}  // namespace
}  // namespace routerelay::cpu
