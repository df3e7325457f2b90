// SPDX-License-Identifier: Apache-2.0
// An independent float64 masked softmax: the yardstick of every attend, the reference's included. It shares
// no code with src/: masks, rows and offsets are worked out here again, from the definition and key by key.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "support/problem.h"

namespace routerelay::support {

struct Exact {
  int64_t q_tokens = 0, q_heads = 0, head_dim = 0;
  std::vector<double> out;       // [q_tokens, q_heads, head_dim] f64; NaN where no sequence has the query
  std::vector<double> lse_log2;  // [q_heads, q_tokens] f64; NaN likewise

  double out_at(int64_t token, int64_t head, int64_t c) const {
    return out[static_cast<size_t>((token * q_heads + head) * head_dim + c)];
  }
  double lse_at(int64_t token, int64_t head) const {
    return lse_log2[static_cast<size_t>(head * q_tokens + token)];
  }
};

// One query of one head over the keys for which `sees(j)` holds, j counted in the sequence.
template <class Sees>
void exact_query(const Problem& p, const Sequence& s, int64_t token, int64_t head, const Sees& sees,
                 Exact& e) {
  const int64_t kv_head = head / (p.q.view.heads / p.k.view.heads);
  std::vector<double> logit(static_cast<size_t>(s.k_len), -std::numeric_limits<double>::infinity());
  double best = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < s.k_len; ++j) {
    if (!sees(j)) continue;
    double dot = 0;
    for (int64_t c = 0; c < e.head_dim; ++c)
      dot += static_cast<double>(p.q.get(token, head, c)) * p.k.get(s.k_begin + j, kv_head, c);
    logit[static_cast<size_t>(j)] = dot * static_cast<double>(p.scale);
    best = std::fmax(best, logit[static_cast<size_t>(j)]);
  }
  double total = 0;
  std::vector<double> sum(static_cast<size_t>(e.head_dim), 0);
  for (int64_t j = 0; j < s.k_len; ++j) {
    if (!sees(j)) continue;
    const double weight = std::exp(logit[static_cast<size_t>(j)] - best);
    total += weight;
    for (int64_t c = 0; c < e.head_dim; ++c)
      sum[static_cast<size_t>(c)] += weight * static_cast<double>(p.v.get(s.k_begin + j, kv_head, c));
  }
  for (int64_t c = 0; c < e.head_dim; ++c)
    e.out[static_cast<size_t>((token * e.q_heads + head) * e.head_dim + c)] =
        total > 0 ? sum[static_cast<size_t>(c)] / total : 0;
  e.lse_log2[static_cast<size_t>(head * e.q_tokens + token)] =
      total > 0 ? (best + std::log(total)) / std::log(2.0) : -std::numeric_limits<double>::infinity();
}

// `routes` as the stage gets them: full, or lists indexed by q_head * n_rows + row.
inline Exact exact_attention(const Problem& p, const Routes& routes) {
  Exact e{p.q.view.tokens, p.q.view.heads, p.q.view.head_dim, {}, {}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  e.out.assign(static_cast<size_t>(e.q_tokens * e.q_heads * e.head_dim), nan);
  e.lse_log2.assign(static_cast<size_t>(e.q_heads * e.q_tokens), nan);
  int64_t n_rows = 0;
  for (const Sequence& s : p.sequences) n_rows += (s.q_len + p.rows.q_block - 1) / p.rows.q_block;
  for (int64_t head = 0; head < e.q_heads; ++head) {
    int64_t first_row = 0;
    for (const Sequence& s : p.sequences) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        const int64_t list = head * n_rows + first_row + i / p.rows.q_block;
        std::vector<bool> listed(static_cast<size_t>(s.k_len / p.rows.k_block + 1), routes.full);
        if (!routes.full)
          for (int32_t block : routes.lists[list]) listed[static_cast<size_t>(block)] = true;
        exact_query(
            p, s, s.q_begin + i, head,
            [&](int64_t j) { return j <= s.q_offset + i && listed[static_cast<size_t>(j / p.rows.k_block)]; },
            e);
      }
      first_row += (s.q_len + p.rows.q_block - 1) / p.rows.q_block;
    }
  }
  return e;
}

}  // namespace routerelay::support
