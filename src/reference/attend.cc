// SPDX-License-Identifier: Apache-2.0
// q, k, v, routes -> out, lse_log2: a masked softmax over the keys of each row's blocks, its maximum subtracted.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/assert.h"
#include "reference/read.h"
#include "reference/reference.h"

namespace routerelay::reference {
namespace {

// The keys and values of a row's blocks, in ascending order of position.
struct Gathered {
  std::vector<int64_t> position;  // [n], in the sequence
  std::vector<float> k, v;        // [n, head_dim] f32
};

Gathered gather(const AttendArgs& a, const Row& row, int64_t kv_head, std::span<const int32_t> blocks) {
  Gathered g;
  const auto add = [&](int64_t block) {
    const int64_t begin = block * a.rows.k_block;
    const int64_t count = std::min<int64_t>(a.rows.k_block, row.visible_keys - begin);
    for (int64_t i = 0; i < count; ++i) g.position.push_back(begin + i);
    append_tokens(a.k, row.k_begin + begin, count, kv_head, g.k);
    append_tokens(a.v, row.k_begin + begin, count, kv_head, g.v);
  };
  if (a.routes.full && a.masks == nullptr) {
    for (int64_t block = 0; block < row.visible_blocks; ++block) add(block);
  } else {
    RR_ASSERT(ascends_below(blocks, row.visible_blocks));
    for (int32_t block : blocks) add(block);
  }
  return g;
}

// Those of them that the mask shows to query `token`.
Gathered unmasked(const Gathered& all, const AttendArgs& a, const Row& row, int64_t token) {
  const uint16_t* mask = mask_of(row, a.rows, a.masks->masks, token);
  const int64_t dim = a.q.head_dim;
  Gathered g;
  for (size_t j = 0; j < all.position.size(); ++j) {
    if (!shows(mask[all.position[j]])) continue;
    const auto begin = static_cast<int64_t>(j) * dim;
    g.position.push_back(all.position[j]);
    g.k.insert(g.k.end(), all.k.begin() + begin, all.k.begin() + begin + dim);
    g.v.insert(g.v.end(), all.v.begin() + begin, all.v.begin() + begin + dim);
  }
  return g;
}

// One query [head_dim] over the first `n` gathered keys -> its output row and lse_log2. Without a key: 0 and -inf.
float attend_query(const float* q, const Gathered& g, int64_t n, int64_t dim, double scale,
                   std::vector<double>& out) {
  out.assign(static_cast<size_t>(dim), 0);
  if (n == 0) return -std::numeric_limits<float>::infinity();
  std::vector<double> logit(static_cast<size_t>(n));
  double best = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < n; ++j) {
    logit[static_cast<size_t>(j)] = scale * dot(q, g.k.data() + j * dim, dim);
    best = std::max(best, logit[static_cast<size_t>(j)]);
  }
  double total = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double weight = std::exp(logit[static_cast<size_t>(j)] - best);
    total += weight;
    for (int64_t c = 0; c < dim; ++c)
      out[static_cast<size_t>(c)] += weight * static_cast<double>(g.v[static_cast<size_t>(j * dim + c)]);
  }
  for (double& x : out) x /= total;
  return static_cast<float>(std::log2(total) + best / std::log(2.0));
}

void attend_row(const AttendArgs& a, int64_t row_idx, int64_t q_head) {
  const Row& row = a.rows.rows[static_cast<size_t>(row_idx)];
  const int64_t dim = a.q.head_dim, kv_head = q_head / (a.q.heads / a.k.heads);
  std::span<const int32_t> blocks;
  if (!a.routes.full)
    blocks = a.routes.lists[q_head * a.rows.size() + row_idx];
  else if (a.masks != nullptr)
    blocks = a.masks->shown[row_idx];
  const Gathered all = gather(a, row, kv_head, blocks);
  const std::vector<float> q = read_tokens(a.q, row.q_begin, row.q_count, q_head);
  std::vector<double> out;
  for (int32_t i = 0; i < row.q_count; ++i) {
    // Positions ascend, so what query i may see is a prefix. Keys behind it are never touched: they may hold NaN.
    const int64_t token = row.q_begin + i;
    const Gathered masked = a.masks == nullptr ? Gathered() : unmasked(all, a, row, token);
    const Gathered& g = a.masks == nullptr ? all : masked;
    const auto seen = std::lower_bound(g.position.begin(), g.position.end(), row.keys_of(i));
    const float lse = attend_query(q.data() + i * dim, g, seen - g.position.begin(), dim, a.scale, out);
    for (int64_t c = 0; c < dim; ++c)
      store_f32(a.out.at(token, q_head), a.out.dtype, c, static_cast<float>(out[static_cast<size_t>(c)]));
    if (a.lse_log2 != nullptr) a.lse_log2[q_head * a.q.tokens + token] = lse;
  }
}

}  // namespace

Status attend(const AttendArgs& a, Exec& exec) {
  return exec.for_each(a.q.heads * a.rows.size(),
                       [&](int, int64_t i) { attend_row(a, i % a.rows.size(), i / a.rows.size()); });
}

}  // namespace routerelay::reference
