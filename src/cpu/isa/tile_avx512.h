// SPDX-License-Identifier: Apache-2.0
// The f32 tile of AVX-512: 6 query rows x 64 keys (or 64 of head_dim) in 24 accumulators.
#pragma once

#include "cpu/isa/vec_avx512.h"

namespace routerelay::cpu {
namespace {

struct TileAvx512 {
  using Elem = float;
  static constexpr int kRowStep = 1;
  static constexpr int kRowsAtOnce = 64;  // their scores and p are 16 KiB each
  static constexpr int rows_scored(int) { return kRowsAtOnce; }
  static constexpr int kLanes = SoftmaxRow512::kLanes;
  static constexpr int pitch(int D) { return D; }
  static constexpr int value_size(int D) { return kPanel * D; }
  struct Session {
    Session() {}
  };

  static void pack_keys(const std::byte* k, DType dtype, int64_t token_stride, int n, int D, float* out) {
    with_dtype(dtype, [&]<DType kType>() {
      const int64_t step = bytes_of(kType, token_stride);
      for (int j = 0; j < kPanel; j += 16)
        for (int d = 0; d < D; d += 16) {
          __m512i r[16];
          for (int i = 0; i < 16; ++i)
            r[i] = j + i < n ? _mm512_castps_si512(load16<kType>(k + (j + i) * step, d))
                             : _mm512_setzero_si512();
          transpose16(r);
          for (int i = 0; i < 16; ++i) _mm512_store_si512(out + (d + i) * kPanel + j, r[i]);
        }
    });
  }

  static bool pack_values(const std::byte* v, DType dtype, int64_t token_stride, int n, int D, float* out) {
    return with_dtype(dtype, [&]<DType kType>() {
      const int64_t step = bytes_of(kType, token_stride);
      __mmask16 bad = 0;
      for (int j = 0; j < kPanel; ++j)
        for (int d = 0; d < D; d += 16) {
          const __m512 x = j < n ? load16<kType>(v + j * step, d) : _mm512_setzero_ps();
          bad |= _mm512_fpclass_ps_mask(x, 0x99);  // quiet and signalling NaN, both infinities
          _mm512_store_ps(out + j * D + d, x);
        }
      return bad == 0;
    });
  }

  static void clear_value(float* panel, int D, int key) {
    for (int d = 0; d < D; d += 16) _mm512_store_ps(panel + key * D + d, _mm512_setzero_ps());
  }

  static void pack_rows(const std::byte* q, DType dtype, int64_t token_stride, int M, int D, float factor,
                        float* out) {
    with_dtype(dtype, [&]<DType kType>() {
      const int64_t step = bytes_of(kType, token_stride);
      for (int i = 0; i < M; ++i)
        for (int d = 0; d < D; d += 16) {
          const __m512 x = load16<kType>(q + i * step, d);
          _mm512_store_ps(out + i * D + d, _mm512_mul_ps(x, _mm512_set1_ps(factor)));
        }
    });
  }

  static void scores(const float* rows, int M, const float* panel, int D, float* s, int64_t s_pitch,
                     Ahead* ahead = nullptr) {
    for (int i = 0; i < M; i += kRows)
      with_rows(M - i, [&]<int R>() {
        const std::byte* lines = Ahead::take(ahead, D);
        if (lines != nullptr)
          score_rows<R, true>(rows + i * D, panel, D, s + i * s_pitch, s_pitch, lines);
        else
          score_rows<R, false>(rows + i * D, panel, D, s + i * s_pitch, s_pitch, lines);
      });
  }

  static void accumulate(const float* p, int M, const float* panel, int D, float* acc,
                         Ahead* ahead = nullptr) {
    for (int d = 0; d < D;) {
      // 80 and 96 split 48 + 32 and 48 + 48: a column of one vector would wait on its loads.
      const int vectors = (D - d) / 16;
      const auto columns = [&]<int V>() {
        for (int i = 0; i < M; i += kRows)
          with_rows(M - i, [&]<int R>() {
            const std::byte* lines = Ahead::take(ahead, kPanel);
            if (lines != nullptr)
              accumulate_rows<R, V, true>(p + i * kPanel, panel + d, D, acc + i * D + d, lines);
            else
              accumulate_rows<R, V, false>(p + i * kPanel, panel + d, D, acc + i * D + d, lines);
          });
        d += V * 16;
      };
      if (vectors >= 7 || vectors == 4)
        columns.template operator()<4>();
      else if (vectors >= 5 || vectors == 3)
        columns.template operator()<3>();
      else if (vectors == 2)
        columns.template operator()<2>();
      else
        columns.template operator()<1>();
    }
  }

  static void softmax(const float* s, int M, float factor, float* p, float* max, float* sum, float* acc,
                      int D, Ahead* = nullptr) {
    const float slack = in_scores(kMaxSlack, factor);
    const __m512 scale = _mm512_set1_ps(factor);
    for (int i = 0; i < M; ++i) {
      const float* row = s + i * kPanel;
      __m512 x[4] = {_mm512_load_ps(row), _mm512_load_ps(row + 16), _mm512_load_ps(row + 32),
                     _mm512_load_ps(row + 48)};
      if (SoftmaxRow512::passes(x, max[i] + slack))
        SoftmaxRow512::rescale(row, factor, max + i, sum + i * kLanes, acc + i * D, D);
      const __m512 shift = SoftmaxRow512::shift_of(max[i], factor, x);
      __m512 total = _mm512_load_ps(sum + i * kLanes);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m512 y = exp2<5>(_mm512_fmsub_ps(x[j], scale, shift));
        _mm512_store_ps(p + i * kPanel + j * 16, y);
        total = _mm512_add_ps(total, y);
      }
      _mm512_store_ps(sum + i * kLanes, total);
    }
  }

  static void finish(const float* acc, float max, const float* sum, int D, std::byte* out, DType dtype,
                     float* lse) {
    SoftmaxRow512::finish(acc, max, sum, D, out, dtype, lse);
  }
  static float row_max(const float* s, int64_t n) {
    return SoftmaxRow512::row_max(s, n);
  }
  static void exp2_sums(float* s, int64_t n, float max, float* sums) {
    SoftmaxRow512::exp2_sums(s, n, max, sums);
  }

 private:
  // 6 x 4 accumulators, 4 vectors of keys and 1 broadcast query are 29 of 32 registers; per step 24 FMAs (12
  // cycles on two ports) stand against 10 loads (5 cycles).
  static constexpr int kRows = 6;

  template <class Fn>
  static void with_rows(int left, Fn fn) {
    if (left >= 6) return fn.template operator()<6>();
    if (left == 5) return fn.template operator()<5>();
    if (left == 4) return fn.template operator()<4>();
    if (left == 3) return fn.template operator()<3>();
    if (left == 2) return fn.template operator()<2>();
    return fn.template operator()<1>();
  }

  template <int R, bool kAhead>
  static void score_rows(const float* q, const float* panel, int D, float* s, int64_t s_pitch,
                         [[maybe_unused]] const std::byte* ahead) {
    __m512 c[R][4] = {};
    for (int d = 0; d < D; ++d) {
      if constexpr (kAhead) _mm_prefetch(ahead + d * 64, _MM_HINT_T1);
      const float* k = panel + d * kPanel;
      const __m512 k0 = _mm512_load_ps(k), k1 = _mm512_load_ps(k + 16), k2 = _mm512_load_ps(k + 32),
                   k3 = _mm512_load_ps(k + 48);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512 x = _mm512_set1_ps(q[r * D + d]);
        c[r][0] = _mm512_fmadd_ps(x, k0, c[r][0]);
        c[r][1] = _mm512_fmadd_ps(x, k1, c[r][1]);
        c[r][2] = _mm512_fmadd_ps(x, k2, c[r][2]);
        c[r][3] = _mm512_fmadd_ps(x, k3, c[r][3]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) _mm512_store_ps(s + r * s_pitch + j * 16, c[r][j]);
  }

  template <int R, int V, bool kAhead>
  static void accumulate_rows(const float* p, const float* v, int D, float* acc,
                              [[maybe_unused]] const std::byte* ahead) {
    __m512 c[R][V];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int x = 0; x < V; ++x) c[r][x] = _mm512_load_ps(acc + r * D + x * 16);
    for (int j = 0; j < kPanel; ++j) {
      if constexpr (kAhead) _mm_prefetch(ahead + j * 64, _MM_HINT_T1);
      __m512 w[V];
#pragma GCC unroll 4
      for (int x = 0; x < V; ++x) w[x] = _mm512_load_ps(v + j * D + x * 16);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512 y = _mm512_set1_ps(p[r * kPanel + j]);
#pragma GCC unroll 4
        for (int x = 0; x < V; ++x) c[r][x] = _mm512_fmadd_ps(y, w[x], c[r][x]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int x = 0; x < V; ++x) _mm512_store_ps(acc + r * D + x * 16, c[r][x]);
  }
};
static_assert(ScoreOps<TileAvx512>);

}  // namespace
}  // namespace routerelay::cpu
