// SPDX-License-Identifier: Apache-2.0
#include "core/policy/units.h"

namespace routerelay {

void score_units(RowScorer& scorer, int thread, int kv_head, const Units& units, Router router,
                 PolicyScratch& scratch) {
  const bool rescues = router == Router::kBall;
  size_t extra = 0;
  for (size_t i = 0; i < scratch.n_units; ++i) {
    UnitScores& u = scratch.units[i];
    u.score.resize(u.ids.size());
    u.rescue.resize(rescues ? u.ids.size() : 0);
    extra += u.ids.size() * static_cast<size_t>(units.heads_per_unit - 1) * (rescues ? 2 : 1);
  }
  scratch.head_scores.resize(extra);
  scratch.requests.clear();
  float* next = scratch.head_scores.data();
  for (size_t i = 0; i < scratch.n_units; ++i) {
    UnitScores& u = scratch.units[i];
    for (int h = 0; h < units.heads_per_unit; ++h) {
      ScoreRequest r{units.first_head(kv_head, u.unit) + h, u.ids, u.score.data(),
                     rescues ? u.rescue.data() : nullptr, u.samples};
      if (h > 0) {
        r.score = next;
        next += u.ids.size();
        if (rescues) {
          r.rescue = next;
          next += u.ids.size();
        }
      }
      scratch.requests.push_back(r);
    }
  }
  scratch.row_requests.clear();
  const auto heads = static_cast<size_t>(units.heads_per_unit);
  for (size_t i = 0, end = 0; i < scratch.n_units; i = end) {
    for (end = i; end < scratch.n_units && scratch.units[end].row == scratch.units[i].row; ++end) continue;
    scratch.row_requests.push_back(
        {scratch.units[i].row, std::span(scratch.requests).subspan(i * heads, (end - i) * heads)});
  }
  scorer.score_rows(thread, kv_head, scratch.row_requests);
  size_t request = 0;
  for (size_t i = 0; i < scratch.n_units; ++i) {
    UnitScores& u = scratch.units[i];
    for (int h = 0; h < units.heads_per_unit; ++h, ++request) {
      if (h == 0) continue;
      const ScoreRequest& r = scratch.requests[request];
      for (size_t j = 0; j < u.ids.size(); ++j) {
        u.score[j] += r.score[j];
        if (rescues) u.rescue[j] += r.rescue[j];
      }
    }
  }
}

}  // namespace routerelay
