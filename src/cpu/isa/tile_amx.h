// SPDX-License-Identifier: Apache-2.0
// The bf16 tiles of AMX: 16 rows x 64 columns of results in tiles 0 to 3, rows in tiles from 4, the panel in the rest.
#pragma once

#include <utility>

#include "cpu/isa/amx.h"
#include "cpu/isa/tile_bf16.h"

namespace routerelay::cpu {
namespace {

// One bf16 per element, or with kParts = 2 a high and a low one, which hold an f16 exactly and 16 bits of an f32: three
// products per score and two per value make f16 caches as good as they are.
template <int kParts>
struct AmxTile : Bf16Packing<16, kParts> {
  using Packing = Bf16Packing<16, kParts>;
  using Session = AmxSession;
  using Packing::pitch;
  // 16 rows of softmax keep AVX-512 between two bursts of products below some 500 cycles: after a longer stretch the
  // next product was seen to wait for 800 (docs/kernel/cpu-attend.md).
  static constexpr int kRowsAtOnce = 16;
  // From head_dim 96 on the keys, values, rows and sums of a step are more than L1. There 32 rows share a walk over the
  // keys, and keys and rows pass L1 by, which leaves it to values and sums: a fifth faster at 128, at 64 slower.
  static constexpr int rows_scored(int D) { return kParts == 1 && D >= 96 ? 32 : kRowsAtOnce; }

  static void scores(const uint16_t* rows, int M, const uint16_t* panel, int D, float* s, int64_t s_pitch,
                     Ahead* = nullptr) {
    const int64_t part = pitch(D) / kParts;
    int i = 0;
    for (; rows_scored(D) == 32 && i + 16 < M; i += 32)
      for (int j = 0; j < kPanel; j += 32)
        score_32x32(rows + i * pitch(D), pitch(D), panel + j * 2, static_cast<int>(part / 32),
                    s + i * s_pitch + j, s_pitch);
    for (; i < M; i += 16)
      multiply<4, kParts, false>({rows + i * pitch(D), pitch(D), part}, {panel, kPanel, kPanel * part},
                                 static_cast<int>(part / 32), s + i * s_pitch, s_pitch);
  }

  static void accumulate(const uint16_t* p, int M, const uint16_t* panel, int D, float* acc,
                         Ahead* = nullptr) {
    for (int i = 0; i < M; i += 16)
      for (int d = 0; d < D; d += 64) {
        const auto columns = [&]<int C>() {
          multiply<C, 1, true>({p + i * kPanel, kPanel, 0}, {panel + d * 2, D, kPanel * D}, kPanel / 32,
                               acc + i * D + d, D);
        };
        if (D - d >= 64)
          columns.template operator()<4>();
        else if (D - d == 48)
          columns.template operator()<3>();
        else if (D - d == 32)
          columns.template operator()<2>();
        else
          columns.template operator()<1>();
      }
  }

 private:
  // [16][pitch] bf16, and [16 K][pitch] pairs; the low part `part` elements behind the high one.
  struct Operand {
    const uint16_t* at;
    int64_t pitch;
    int64_t part;
  };

  template <int N, class Fn>
  static void repeat(Fn fn) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
      (fn.template operator()<I>(), ...);
    }
    (std::make_integer_sequence<int, N>{});
  }

  // s [32][32] = rows [32][32 K] * keys [16 K][32][2], the latter in a panel.
  static void score_32x32(const uint16_t* rows, int64_t row_pitch, const uint16_t* keys, int K, float* s,
                          int64_t s_pitch) {
    constexpr int64_t kKeyStride = kPanel * 4;
    const int64_t row_stride = row_pitch * 2, s_stride = s_pitch * 4;
    repeat<4>([]<int x>() { amx_zero<x>(); });
    for (int k = 0; k < K; ++k, rows += 32, keys += 16 * kPanel * 2) {
      amx_load_from_l2<4>(rows, row_stride);
      amx_load_from_l2<6>(keys, kKeyStride);
      amx_dot<0, 4, 6>();
      amx_load_from_l2<7>(keys + 32, kKeyStride);
      amx_dot<1, 4, 7>();
      amx_load_from_l2<5>(rows + 16 * row_pitch, row_stride);
      amx_dot<2, 5, 6>();
      amx_dot<3, 5, 7>();
    }
    amx_store<0>(s, s_stride);
    amx_store<1>(s + 16, s_stride);
    amx_store<2>(s + 16 * s_pitch, s_stride);
    amx_store<3>(s + 16 * s_pitch + 16, s_stride);
  }

  // c [16][16 C] (+)= a [16][32 K] * b [16 K][16 C][2], a in kRowParts parts. Low times low is below f32's last bit.
  template <int C, int kRowParts, bool kAdd>
  static void multiply(Operand a, Operand b, int K, float* c, int64_t c_pitch) {
    const int64_t a_stride = a.pitch * 2, b_stride = b.pitch * 4, c_stride = c_pitch * 4;
    repeat<C>([&]<int x>() {
      if constexpr (kAdd)
        amx_load<x>(c + x * 16, c_stride);
      else
        amx_zero<x>();
    });
    for (int k = 0; k < K; ++k) {
      repeat<kRowParts>([&]<int i>() { amx_load<4 + i>(a.at + i * a.part + k * 32, a_stride); });
      repeat<C>([&]<int x>() {
        repeat<kParts>([&]<int j>() {
          // The panel's tiles take turns, so that a load need not wait for the product before.
          constexpr int kFree = 4 - kRowParts, kTile = 4 + kRowParts + (x * kParts + j) % kFree;
          amx_load<kTile>(b.at + j * b.part + (k * 16 * b.pitch + x * 16) * 2, b_stride);
          amx_dot<x, 4, kTile>();
          if constexpr (kRowParts == 2 && j == 0) amx_dot<x, 5, kTile>();
        });
      });
    }
    repeat<C>([&]<int x>() { amx_store<x>(c + x * 16, c_stride); });
  }
};
using TileAmx = AmxTile<1>;
using TileAmxSplit = AmxTile<2>;
static_assert(TileOps<TileAmx> && TileOps<TileAmxSplit>);

}  // namespace
}  // namespace routerelay::cpu
