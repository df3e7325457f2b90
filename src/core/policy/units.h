// SPDX-License-Identifier: Apache-2.0
// How relay and route walk a call: KV heads in groups, (row, KV head) items, and in each the units that share
// a list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/exec.h"
#include "core/policy/scorer.h"
#include "core/policy/select.h"
#include "core/rows.h"
#include "routerelay/options.hpp"
#include "routerelay/report.hpp"

namespace routerelay {

// A unit is the query heads that share one list: one head, or with Heads::kGroup all heads of a KV head.
struct Units {
  int q_heads = 0;
  int kv_heads = 0;
  int heads_per_unit = 1;
  int64_t n_rows = 0;

  Units(const Tensor& q, const Tensor& k, const Rows& rows, Heads heads)
      : q_heads(static_cast<int>(q.heads)), kv_heads(static_cast<int>(k.heads)), n_rows(rows.size()) {
    heads_per_unit = heads == Heads::kGroup ? q_heads / kv_heads : 1;
  }
  int group() const { return q_heads / kv_heads; }
  int per_kv_head() const { return group() / heads_per_unit; }
  int first_head(int kv_head, int unit) const { return kv_head * group() + unit * heads_per_unit; }
  int64_t list(int q_head, int64_t row) const { return q_head * n_rows + row; }
};

// What one unit of a row wants scored, and where its scores arrive: summed over its heads.
struct UnitScores {
  int64_t row = 0;
  int unit = 0;
  int samples = 0;  // of ScoreRequest
  std::vector<int32_t> ids;
  std::vector<float> score;
  std::vector<float> rescue;  // empty unless the router is ball
};

// route: a unit that candidates could not settle.
struct Again {
  int64_t row = 0;
  int unit = 0;
  Cause cause = Cause::kNone;
};

// Per-thread buffers of relay and route.
struct PolicyScratch {
  std::vector<UnitScores> units;  // used up to n_units
  size_t n_units = 0;
  std::vector<float> head_scores;  // of heads beyond the first of each unit
  std::vector<ScoreRequest> requests;
  std::vector<RowRequests> row_requests;
  SelectScratch select;
  Selected selected;
  std::vector<int32_t> ids;
  std::vector<uint8_t> marks;  // relay: by block of the row
  std::vector<Again> again;

  UnitScores& add(int64_t row, int unit) {
    if (n_units == units.size()) units.emplace_back();
    UnitScores& u = units[n_units++];
    u.row = row;
    u.unit = unit;
    u.samples = 0;
    u.ids.clear();
    return u;
  }
};

// Scores every unit added to `scratch`, row after row, in one call of the scorer, so that it can share work between
// rows and heads.
void score_units(RowScorer& scorer, int thread, int kv_head, const Units& units, Router router,
                 PolicyScratch& scratch);

// fn(thread, kv_head, first_row, end_row) for every row and KV head, KV heads in groups that the scorer was told of,
// rows as many at once as it likes.
template <class Fn>
Status for_each_item(RowScorer& scorer, const Units& units, Exec& exec, const Fn& fn) {
  const int group = std::max(1, exec.threads());
  for (int kv = 0; kv < units.kv_heads; kv += group) {
    const int count = std::min(group, units.kv_heads - kv);
    RR_TRY(scorer.begin_heads(kv, count, exec));
    // Short calls are rather shared out than scored together: four items per thread, the shortest last, keep the
    // threads even.
    const int64_t at_once = std::clamp<int64_t>(units.n_rows * count / (4 * group), 1, scorer.rows_at_once());
    // Late rows see most: longest first.
    RR_TRY(exec.for_each(ceil_div(units.n_rows, at_once) * count, [&](int thread, int64_t i) {
      const int64_t end = units.n_rows - i / count * at_once;
      fn(thread, kv + static_cast<int>(i % count), std::max<int64_t>(0, end - at_once), end);
    }));
  }
  return {};
}

}  // namespace routerelay
