// SPDX-License-Identifier: Apache-2.0
// One vector's scores on one slot -> the sum of their exponentials per block, by the tile's own exp2. What a vector
// knows of its slots so far is kept relative to its shift, a maximum that may lag (kMaxSlack), so that scores are
// needed once and never stored. Included by kernel_<isa>.cc only; anonymous for the reason that isa/tile.h gives.
#pragma once

#include "cpu/isa/tile.h"
#include "cpu/route/kernel.h"

namespace routerelay::cpu {
namespace {

// The sums of one vector: [n] f32, relative to *shift.
struct VectorSums {
  float* sums = nullptr;
  int64_t n = 0;
  float* shift = nullptr;

  // Lets the shift follow when `top` passes it by more than the slack. The first score always does, and finds no sum
  // but zeros: what was masked before it.
  void follow(float top) const {
    if (top > *shift + kMaxSlack) raise(top);
  }
  [[gnu::noinline]] void raise(float top) const {
    const float factor = __builtin_exp2f(*shift - top);
    for (int64_t i = 0; i < n; ++i) sums[i] *= factor;
    *shift = top;
  }
  // A vector without a visible score so far has the shift -inf: subtracting it would make NaN.
  float subtrahend() const { return *shift == -__builtin_inff() ? 0.0f : *shift; }
};

// Sums of 64 numbers whose element j belongs to block j % kBlocks.
template <int kBlocks>
void sum_interleaved(const float* s, float* sums) {
  float total[kBlocks] = {};
  for (int j = 0; j < kPanel; j += kBlocks)
    for (int b = 0; b < kBlocks; ++b) total[b] += s[j + b];
  for (int b = 0; b < kBlocks; ++b) sums[b] = total[b];
}

inline void sum_blocks(const float* s, int n_blocks, float* sums) {
  switch (n_blocks) {
    case 2:
      return sum_interleaved<2>(s, sums);
    case 4:
      return sum_interleaved<4>(s, sums);
    case 8:
      return sum_interleaved<8>(s, sums);
    case 16:
      return sum_interleaved<16>(s, sums);
    case 32:
      return sum_interleaved<32>(s, sums);
    default:
      return sum_interleaved<64>(s, sums);
  }
}

template <class Tile>
struct BlockSums {
  // Adds the blocks of a slot, scored in s, behind the sums of `v`. s is overwritten.
  static void append(float* s, const PanelShape& shape, VectorSums v) {
    const int n_panels = shape.panels_per_slot;
    v.follow(Tile::row_max(s, int64_t{n_panels} * kPanel));
    float panel_sums[2];
    Tile::exp2_sums(s, n_panels, *v.shift, panel_sums);
    float* sums = v.sums + v.n;
    if (shape.blocks_per_slot > 1)
      sum_blocks(s, shape.blocks_per_slot, sums);
    else
      *sums = n_panels == 1 ? panel_sums[0] : panel_sums[0] + panel_sums[1];
  }
};

}  // namespace
}  // namespace routerelay::cpu
