// SPDX-License-Identifier: Apache-2.0
// What routers know of the keys, per block: written by summarize, read by relay and route.
#pragma once

#include <cstdint>
#include <vector>

#include "routerelay/options.hpp"

namespace routerelay {

// Which parts a Pass needs; the rest stays empty.
struct SummaryNeeds {
  bool mean = false;        // centroid, ball
  bool sub_means = false;   // sub, and screen's cheap router
  bool box = false;         // box
  bool radius = false;      // ball
  bool value_mean = false;  // nobody yet but tools; kept because it costs one pass over V
  int sub_k = 8;            // keys per sub-block mean

  static SummaryNeeds of(const Options& options);
  bool any() const { return mean || sub_means || box || radius || value_mean; }
};

// Blocks run over all sequences (Rows::runs). A partly filled last block is summarised by what is there.
struct Summary {
  int64_t n_blocks = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int subs_per_block = 0;   // k_block / sub_k
  std::vector<float> mean;  // [kv_heads, n_blocks, head_dim] f32
  // bf16: 8 means of 64 keys are 6 % of a 16-bit K+V; f32 would break the 8 % bar.
  // A group without a key is zero and must not be scored.
  std::vector<uint16_t> sub_means;  // [kv_heads, n_blocks * subs_per_block, head_dim] bf16
  std::vector<float> box_min;       // [kv_heads, n_blocks, head_dim] f32
  std::vector<float> box_max;       // [kv_heads, n_blocks, head_dim] f32
  std::vector<float> radius;        // [kv_heads, n_blocks] f32, max |k - mean| with the stored mean
  std::vector<float> value_mean;    // [kv_heads, n_blocks, head_dim] f32

  int64_t bytes() const {
    return static_cast<int64_t>(
        4 * (mean.size() + box_min.size() + box_max.size() + radius.size() + value_mean.size()) +
        2 * sub_means.size());
  }
  // Sizes every needed array and zeroes it.
  void resize(const SummaryNeeds& needs, int64_t n_blocks, int64_t kv_heads, int64_t head_dim, int k_block);
};

}  // namespace routerelay
