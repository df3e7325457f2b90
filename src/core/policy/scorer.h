// SPDX-License-Identifier: Apache-2.0
// What a router offers to relay and route: scores of chosen blocks for one row and the heads of one KV group.
// The rules above it (core/policy) are shared by every back end; only the arithmetic below it differs.
#pragma once

#include <cstdint>
#include <span>

#include "core/exec.h"
#include "core/rows.h"
#include "routerelay/options.hpp"

namespace routerelay {

// The blocks of one query head to score. `ids` ascend and are visible to the row; they hold every forced
// block or not, as the caller likes.
struct ScoreRequest {
  int q_head = 0;
  std::span<const int32_t> ids;
  float* score = nullptr;   // [ids.size()] f32, written
  float* rescue = nullptr;  // [ids.size()] f32, ball only: the second score; may be null
  int samples = 0;          // sampled: query tokens of the row; 0 = RouterOptions::samples
};

// centroid, box, ball: raw scores in natural-log units; the score of a pair depends on that pair alone, bit
// for bit. sub, sampled, antidiag: probabilities that sum to 1 over the scored blocks (softmax over their
// visible keys only).
constexpr bool is_softmax(Router router) {
  return router == Router::kSub || router == Router::kSampled || router == Router::kAntidiag;
}

// The requests of one row, all for heads of one KV head.
struct RowRequests {
  int64_t row = 0;
  std::span<const ScoreRequest> requests;
};

class RowScorer {
 public:
  virtual ~RowScorer() = default;
  // Before the rows of KV heads [kv_first, kv_first + kv_count), at most exec.threads() of them, are scored:
  // the place to pack their keys once. Called outside parallel parts; scores of other heads are not asked for
  // until the next call.
  virtual Status begin_heads([[maybe_unused]] int kv_first, [[maybe_unused]] int kv_count,
                             [[maybe_unused]] Exec& exec) {
    return {};
  }
  // Scores each request for rows.rows[row]; all requests belong to heads of KV head `kv_head`. Called from
  // several threads at once, with the pool's thread index. NaN and inf in q or k may give any score, but
  // never a crash.
  virtual void score(int thread, int64_t row, int kv_head, std::span<const ScoreRequest> requests) = 0;
  // How many rows score_rows would like at once, so that they share each pass over the keys.
  virtual int rows_at_once() const { return 1; }
  // As score, for several rows of one KV head; no score depends on which rows come together.
  virtual void score_rows(int thread, int kv_head, std::span<const RowRequests> rows) {
    for (const RowRequests& r : rows) score(thread, r.row, kv_head, r.requests);
  }
};

}  // namespace routerelay
