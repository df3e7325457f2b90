// SPDX-License-Identifier: Apache-2.0
// The bf16 tile of AVX-512 BF16: 6 query rows x 64 keys (or 64 of head_dim) in 24 accumulators of vdpbf16ps, which
// multiplies pairs and sums in f32.
#pragma once

#include "cpu/isa/tile_bf16.h"

namespace routerelay::cpu {
namespace {

struct TileAvx512Bf16 : Bf16Packing<1, 1> {
  static constexpr int kRowsAtOnce = 64;  // their scores are 16 KiB, their p 8 KiB
  static constexpr int rows_scored(int) { return kRowsAtOnce; }
  struct Session {
    Session() {}
  };

  static void scores(const uint16_t* rows, int M, const uint16_t* panel, int D, float* s, int64_t s_pitch,
                     Ahead* ahead = nullptr) {
    for (int i = 0; i < M; i += kRows)
      with_rows(M - i, [&]<int R>() {
        multiply<R, 4, false>(rows + i * pitch(D), pitch(D), panel, kPanel, D / 2, s + i * s_pitch, s_pitch,
                              Ahead::take(ahead, D / 2));
      });
  }

  static void accumulate(const uint16_t* p, int M, const uint16_t* panel, int D, float* acc,
                         Ahead* ahead = nullptr) {
    for (int d = 0; d < D;) {
      const auto columns = [&]<int V>() {
        for (int i = 0; i < M; i += kRows)
          with_rows(M - i, [&]<int R>() {
            multiply<R, V, true>(p + i * kPanel, kPanel, panel + d * 2, D, kPanel / 2, acc + i * D + d, D,
                                 Ahead::take(ahead, kPanel / 2));
          });
        d += V * 16;
      };
      // 80 and 96 split 48 + 32 and 48 + 48: a column of one vector would wait on its loads.
      const int vectors = (D - d) / 16;
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

 private:
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

  // c [R][16 V] (+)= a [R][2 K] * b [K][.][2], b's rows b_pitch pairs apart.
  template <int R, int V, bool kAdd>
  static void multiply(const uint16_t* a, int64_t a_pitch, const uint16_t* b, int64_t b_pitch, int K,
                       float* c, int64_t c_pitch, const std::byte* ahead) {
    if (ahead != nullptr)
      multiply<R, V, kAdd, true>(a, a_pitch, b, b_pitch, K, c, c_pitch, ahead);
    else
      multiply<R, V, kAdd, false>(a, a_pitch, b, b_pitch, K, c, c_pitch, ahead);
  }

  template <int R, int V, bool kAdd, bool kAhead>
  static void multiply(const uint16_t* a, int64_t a_pitch, const uint16_t* b, int64_t b_pitch, int K,
                       float* c, int64_t c_pitch, [[maybe_unused]] const std::byte* ahead) {
    __m512 x[R][V];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        x[r][v] = kAdd ? _mm512_load_ps(c + r * c_pitch + v * 16) : _mm512_setzero_ps();
    for (int k = 0; k < K; ++k) {
      if constexpr (kAhead) _mm_prefetch(ahead + k * 64, _MM_HINT_T1);
      __m512bh w[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) w[v] = (__m512bh)_mm512_load_si512(b + (k * b_pitch + v * 16) * 2);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        int32_t pair;
        __builtin_memcpy(&pair, a + r * a_pitch + 2 * k, sizeof(pair));
        const __m512bh y = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) x[r][v] = _mm512_dpbf16_ps(x[r][v], y, w[v]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) _mm512_store_ps(c + r * c_pitch + v * 16, x[r][v]);
  }
};
static_assert(TileOps<TileAvx512Bf16>);

}  // namespace
}  // namespace routerelay::cpu
