// SPDX-License-Identifier: Apache-2.0
// An independent float64 masked softmax: the yardstick of every attend, the reference's included. It shares no code
// with src/: masks, rows and offsets are worked out here again, from the definition and key by key.
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

// A tensor's values in f64, so that the softmax below reads plain arrays.
class Widened {
 public:
  explicit Widened(const OwnedTensor& t) : heads_(t.view.heads), head_dim_(t.view.head_dim) {
    for (int64_t token = 0; token < t.view.tokens; ++token)
      for (int64_t head = 0; head < heads_; ++head)
        for (int64_t c = 0; c < head_dim_; ++c) values_.push_back(t.get(token, head, c));
  }
  const double* at(int64_t token, int64_t head) const {
    return values_.data() + (token * heads_ + head) * head_dim_;
  }

 private:
  int64_t heads_, head_dim_;
  std::vector<double> values_;  // [tokens, heads, head_dim] f64
};

struct ExactInput {
  explicit ExactInput(const Problem& p)
      : q(p.q), k(p.k), v(p.v), group(p.q.view.heads / p.k.view.heads), scale(p.scale) {}
  Widened q, k, v;
  int64_t group;
  double scale;
};

// One query of one head over `keys`, token numbers in k and v.
inline void exact_query(const ExactInput& in, const std::vector<int64_t>& keys, int64_t token, int64_t head,
                        Exact& e) {
  const double* q = in.q.at(token, head);
  std::vector<double> logit;
  double best = -std::numeric_limits<double>::infinity();
  for (int64_t key : keys) {
    const double* k = in.k.at(key, head / in.group);
    double sum = 0;
    for (int64_t c = 0; c < e.head_dim; ++c) sum += q[c] * k[c];
    logit.push_back(sum * in.scale);
    best = std::fmax(best, logit.back());
  }
  double total = 0;
  double* out = e.out.data() + (token * e.q_heads + head) * e.head_dim;
  for (int64_t c = 0; c < e.head_dim; ++c) out[c] = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(logit[i] - best);
    const double* v = in.v.at(keys[i], head / in.group);
    total += weight;
    for (int64_t c = 0; c < e.head_dim; ++c) out[c] += weight * v[c];
  }
  for (int64_t c = 0; c < e.head_dim && !keys.empty(); ++c) out[c] /= total;
  e.lse_log2[static_cast<size_t>(head * e.q_tokens + token)] =
      keys.empty() ? -std::numeric_limits<double>::infinity() : (best + std::log(total)) / std::log(2.0);
}

// One query of one head.
struct ExactQuery {
  size_t sequence = 0;
  int64_t i = 0;  // in its sequence
  int64_t head = 0;
  int64_t row = 0;  // of its head
};

inline std::vector<ExactQuery> exact_queries(const Problem& p) {
  std::vector<ExactQuery> queries;
  for (int64_t head = 0; head < p.q.view.heads; ++head) {
    int64_t first_row = 0;
    for (size_t at = 0; at < p.sequences.size(); ++at) {
      const int64_t q_len = p.sequences[at].q_len, q_block = p.rows.q_block;
      for (int64_t i = 0; i < q_len; ++i) queries.push_back({at, i, head, first_row + i / q_block});
      first_row += (q_len + q_block - 1) / q_block;
    }
  }
  return queries;
}

// The keys that a query sees, as token numbers in k and v. `routes` as the stage gets them: full, or lists indexed by
// q_head * n_rows + row.
inline std::vector<int64_t> exact_keys(const Problem& p, const Routes& routes, const ExactQuery& query) {
  const Sequence& s = p.sequences[query.sequence];
  const int64_t k_block = p.rows.k_block;
  int64_t n_rows = 0;
  for (const Sequence& each : p.sequences) n_rows += (each.q_len + p.rows.q_block - 1) / p.rows.q_block;
  std::vector<bool> listed(static_cast<size_t>(s.k_len / k_block + 1), routes.full);
  if (!routes.full)
    for (int32_t block : routes.lists[query.head * n_rows + query.row])
      listed[static_cast<size_t>(block)] = true;
  std::vector<int64_t> keys;
  for (int64_t j = 0; j < s.k_len && j <= s.q_offset + query.i; ++j)
    if (listed[static_cast<size_t>(j / k_block)] && p.shown(query.sequence, query.i, j))
      keys.push_back(s.k_begin + j);
  return keys;
}

// NaN everywhere: what no sequence's query fills stays so.
inline Exact unfilled(const Problem& p) {
  Exact e{p.q.view.tokens, p.q.view.heads, p.q.view.head_dim, {}, {}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  e.out.assign(static_cast<size_t>(e.q_tokens * e.q_heads * e.head_dim), nan);
  e.lse_log2.assign(static_cast<size_t>(e.q_heads * e.q_tokens), nan);
  return e;
}

inline Exact exact_attention(const Problem& p, const Routes& routes) {
  const ExactInput in(p);
  Exact e = unfilled(p);
  for (const ExactQuery& query : exact_queries(p))
    exact_query(in, exact_keys(p, routes, query), p.sequences[query.sequence].q_begin + query.i, query.head,
                e);
  return e;
}

}  // namespace routerelay::support
