// SPDX-License-Identifier: Apache-2.0
// The bf16 tile of AMX: 2 x 2 blocks of 16 x 16 results in tiles 0 to 3, two tiles of rows (4, 5), two of the panel
// (6, 7). Each loaded tile is used twice, so that 4 loads of 8 cycles hide behind 4 products of 16.
#pragma once

#include "cpu/isa/amx.h"
#include "cpu/isa/tile_bf16.h"

namespace routerelay::cpu {
namespace {

struct TileAmx : Bf16Packing<16> {
  using Session = AmxSession;

  static void scores(const uint16_t* rows, int M, const uint16_t* panel, int D, float* s, int64_t s_pitch,
                     Ahead ahead = {}) {
    for (int i = 0; i < M; i += 32)
      for (int j = 0; j < kPanel; j += 32) {
        const uint16_t* a = rows + i * pitch(D);
        const uint16_t* b = panel + j * 2;
        float* c = s + i * s_pitch + j;
        if (M - i > 16)
          multiply<2, 2, false>(a, pitch(D), b, kPanel, pitch(D) / 32, c, s_pitch, ahead);
        else
          multiply<1, 2, false>(a, pitch(D), b, kPanel, pitch(D) / 32, c, s_pitch, ahead);
      }
  }

  static void accumulate(const uint16_t* p, int M, const uint16_t* panel, int D, float* acc,
                         Ahead ahead = {}) {
    for (int i = 0; i < M; i += 32)
      for (int d = 0; d < D; d += 32) {
        const uint16_t* a = p + i * kPanel;
        const uint16_t* b = panel + d * 2;
        float* c = acc + i * D + d;
        const bool two_rows = M - i > 16, two_columns = D - d > 16;
        if (two_rows && two_columns)
          multiply<2, 2, true>(a, kPanel, b, D, kPanel / 32, c, D, ahead);
        else if (two_rows)
          multiply<2, 1, true>(a, kPanel, b, D, kPanel / 32, c, D, ahead);
        else if (two_columns)
          multiply<1, 2, true>(a, kPanel, b, D, kPanel / 32, c, D, ahead);
        else
          multiply<1, 1, true>(a, kPanel, b, D, kPanel / 32, c, D, ahead);
      }
  }

 private:
  // c [16 R][16 C] (+)= a [16 R][32 K] * b [16 K][.][2]. Pitches: a in bf16, b in pairs, c in f32. Result (r, c) lives
  // in tile 2 r + c.
  template <int R, int C, bool kAdd>
  static void multiply(const uint16_t* a, int64_t a_pitch, const uint16_t* b, int64_t b_pitch, int K,
                       float* c, int64_t c_pitch, Ahead& ahead) {
    const int64_t a_stride = a_pitch * 2, b_stride = b_pitch * 4, c_stride = c_pitch * 4;
    const auto results = [&](auto&& apply) {
      apply.template operator()<0>(c);
      if constexpr (C > 1) apply.template operator()<1>(c + 16);
      if constexpr (R > 1) apply.template operator()<2>(c + 16 * c_pitch);
      if constexpr (R > 1 && C > 1) apply.template operator()<3>(c + 16 * c_pitch + 16);
    };
    results([&]<int kTile>(float* at) {
      if constexpr (kAdd)
        amx_load<kTile>(at, c_stride);
      else
        amx_zero<kTile>();
    });
    for (int k = 0; k < K; ++k) {
      // 16 lines beside up to 64 cycles of products: about what a core gets from L3.
      if (const std::byte* lines = ahead.take(16))
        for (int i = 0; i < 16; ++i) _mm_prefetch(lines + i * 64, _MM_HINT_T1);
      amx_load<6>(b + k * 16 * b_pitch * 2, b_stride);
      amx_load<4>(a + k * 32, a_stride);
      amx_dot<0, 4, 6>();
      if constexpr (C > 1) {
        amx_load<7>(b + (k * 16 * b_pitch + 16) * 2, b_stride);
        amx_dot<1, 4, 7>();
      }
      if constexpr (R > 1) {
        amx_load<5>(a + 16 * a_pitch + k * 32, a_stride);
        amx_dot<2, 5, 6>();
        if constexpr (C > 1) amx_dot<3, 5, 7>();
      }
    }
    results([&]<int kTile>(float* at) { amx_store<kTile>(at, c_stride); });
  }
};
static_assert(TileOps<TileAmx>);

}  // namespace
}  // namespace routerelay::cpu
