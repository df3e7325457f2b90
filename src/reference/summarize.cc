// SPDX-License-Identifier: Apache-2.0
// k, v -> Summary: per block of keys its mean, sub-block means, box and radius, and the mean of its values.
#include <algorithm>
#include <cmath>

#include "reference/read.h"
#include "reference/reference.h"

namespace routerelay::reference {
namespace {

// One block of one KV head. `tokens` are those that are there: a partly filled last block has fewer.
struct Block {
  const float* keys;  // [tokens, head_dim] f32
  int64_t tokens;
  int64_t head_dim;
};

// Smallest and largest key per channel (Quest's box): q.k <= sum_c max(q_c min_c, q_c max_c) for every key.
void write_box(const Block& b, float* low, float* high) {
  for (int64_t c = 0; c < b.head_dim; ++c) {
    low[c] = high[c] = b.keys[c];
    for (int64_t t = 1; t < b.tokens; ++t) {
      low[c] = std::min(low[c], b.keys[t * b.head_dim + c]);
      high[c] = std::max(high[c], b.keys[t * b.head_dim + c]);
    }
  }
}

// max |k - mean| with the mean as stored, so that the ball covers every key.
float radius_about(const Block& b, const float* mean) {
  double widest = 0;
  for (int64_t t = 0; t < b.tokens; ++t) {
    double squared = 0;
    for (int64_t c = 0; c < b.head_dim; ++c) {
      const double d = static_cast<double>(b.keys[t * b.head_dim + c]) - static_cast<double>(mean[c]);
      squared += d * d;
    }
    widest = std::max(widest, std::sqrt(squared));
  }
  return static_cast<float>(widest);
}

// Means of groups of `sub_k` keys over the keys present; a group without a key keeps its zeros.
void write_sub_means(const Block& b, int sub_k, uint16_t* to) {
  for (int64_t begin = 0; begin < b.tokens; begin += sub_k, to += b.head_dim) {
    const int64_t count = std::min<int64_t>(sub_k, b.tokens - begin);
    const std::vector<float> mean = mean_of(b.keys + begin * b.head_dim, count, b.head_dim);
    for (int64_t c = 0; c < b.head_dim; ++c) to[c] = f32_to_bf16(mean[static_cast<size_t>(c)]);
  }
}

void summarize_block(const SummarizeArgs& a, int64_t kv_head, const BlockRun& run, int64_t block) {
  const int64_t first = block * a.rows.k_block, dim = a.k.head_dim;
  const int64_t tokens = std::min<int64_t>(a.rows.k_block, run.k_len - first);
  const std::vector<float> keys = read_tokens(a.k, run.k_begin + first, tokens, kv_head);
  const Block b{keys.data(), tokens, dim};
  Summary& s = a.summary;
  const int64_t at = kv_head * s.n_blocks + run.first_block + block;

  RR_ASSERT(tokens >= 1 && at < s.kv_heads * s.n_blocks);
  const std::vector<float> mean = mean_of(b.keys, tokens, dim);
  if (a.needs.mean) std::copy(mean.begin(), mean.end(), s.mean.begin() + at * dim);
  if (a.needs.radius) s.radius[static_cast<size_t>(at)] = radius_about(b, mean.data());
  if (a.needs.box) write_box(b, s.box_min.data() + at * dim, s.box_max.data() + at * dim);
  if (a.needs.sub_means) write_sub_means(b, a.needs.sub_k, s.sub_means.data() + at * s.subs_per_block * dim);
  if (a.needs.value_mean) {
    const std::vector<float> values = read_tokens(a.v, run.k_begin + first, tokens, kv_head);
    const std::vector<float> value_mean = mean_of(values.data(), tokens, dim);
    std::copy(value_mean.begin(), value_mean.end(), s.value_mean.begin() + at * dim);
  }
}

}  // namespace

Status summarize(const SummarizeArgs& a, Exec& exec) {
  a.summary.resize(a.needs, a.rows.n_blocks, a.k.heads, a.k.head_dim, a.rows.k_block);
  if (!a.needs.any()) return {};
  return exec.for_each(a.k.heads, [&](int, int64_t kv_head) {
    for (const BlockRun& run : a.rows.runs)
      for (int64_t block = 0; block < run.n_blocks; ++block) summarize_block(a, kv_head, run, block);
  });
}

}  // namespace routerelay::reference
