// SPDX-License-Identifier: Apache-2.0
// What an attend kernel is compiled for.
#pragma once

#include "routerelay/tensor.hpp"

namespace routerelay::cuda {

// Named as configs.def names them.
enum class Arch { sm80, sm90 };
namespace dtypes {
inline constexpr DType bf16 = DType::kBF16, f16 = DType::kF16, e4m3 = DType::kE4M3;
}

// One compile-time choice; configs.def lists the legal ones.
struct AttendConfig {
  Arch arch = Arch::sm90;
  DType dtype = DType::kBF16;     // of q and out
  DType kv_dtype = DType::kBF16;  // of k and v: dtype, or e4m3
  int head_dim = 128;
  int q_block = 128;  // queries a row
  int k_block = 128;  // keys a block
  // 2: as many query heads that share keys, values and lists bring a row each into one tile.
  int heads_per_tile = 1;

  bool operator==(const AttendConfig&) const = default;
};

constexpr bool is_quantised(const AttendConfig& c) {
  return c.kv_dtype == DType::kE4M3;
}

// A row's exponentials are taken relative to so many bits below its largest score. f16 ends at 2^-24, and so keeps
// probabilities down to 2^-32 of the largest: all that a million keys lose below is 2^-12. (bf16 has float's range.)
inline constexpr float kBelow = 8;

constexpr int tile_queries(const AttendConfig& c) {
  return c.q_block * c.heads_per_tile;
}

// Keys that one step of the sm_90 kernel multiplies, and those of them that lie side by side.
constexpr int step_keys(const AttendConfig& c) {
  return tile_queries(c) == 128 && c.head_dim <= 128 ? 128 : 64;
}
constexpr int piece_keys(const AttendConfig& c) {
  return c.k_block < step_keys(c) ? c.k_block : step_keys(c);
}

}  // namespace routerelay::cuda
