// SPDX-License-Identifier: Apache-2.0
// Scores and routes of two back ends side by side: tables of scores, and routes that may differ only where a score
// lies within rounding of the cut.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/policy/forced.h"
#include "core/policy/scorer.h"
#include "core/stages.h"
#include "reference/reference.h"
#include "reference/scorer.h"
#include "support/exec.h"
#include "support/problem.h"

namespace routerelay::support {

// How far a score may lie from the reference's: absolute + relative * |score|.
struct ScoreTolerance {
  double absolute = 0;
  double relative = 0;
  double of(double score) const { return absolute + relative * std::fabs(score); }
};

// f32: sums of up to 256 products of N(0, 1) numbers, 20 units in the last place. bf16 rounds queries and keys (and
// means of them) to 2^-9: a logit of N(0, 1) inputs moves by 2^-9 of a standard deviation, at the far end of some
// thousand keys by 8 of those; a probability moves by as much of itself. Pair scores are f32 on every ISA.
inline ScoreTolerance score_tolerance(Router router, Isa isa) {
  if (!is_softmax(router)) return {1e-5, 1e-5};
  const bool bf16 = isa == Isa::kAvx512Bf16 || isa == Isa::kAmxBf16;
  return bf16 ? ScoreTolerance{1e-6, 0.016} : ScoreTolerance{1e-7, 2e-5};
}

// A problem with the reference's summary: scorers of two back ends then differ by their own arithmetic alone.
struct RouteCase {
  RouteCase(const Problem& problem, const Options& chosen) : p(problem), options(chosen) {
    TestExec on(1, Isa::kScalar);
    const SummaryNeeds needs = SummaryNeeds::of(options);
    const Status status = reference::summarize({p.k.view, p.v.view, p.rows, needs, summary}, on.exec);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  using RelayStage = Status (*)(const RelayArgs&, Exec&);
  using RouteStage = Status (*)(const RouteArgs&, Exec&);
  // The next ledger when every row is scored in full.
  Ledger route(RouteStage stage, Isa isa, int threads) const { return route(stage, isa, threads, options); }
  Ledger route(RouteStage stage, Isa isa, int threads, const Options& o) const {
    Proposal proposal;
    proposal.kind.assign(static_cast<size_t>(p.n_lists()), Kind::kAll);
    proposal.cause.assign(proposal.kind.size(), Cause::kFirst);
    proposal.candidates.offsets.assign(proposal.kind.size() + 1, 0);
    return route(stage, isa, threads, o, proposal, Ledger{});
  }
  Ledger route(RouteStage stage, Isa isa, int threads, const Options& o, const Proposal& proposal,
               const Ledger& ledger) const {
    TestExec on(threads, isa);
    Ledger next;
    LayerReport report;
    const Status status =
        stage({p.q.view, p.k.view, p.rows, summary, o, proposal, ledger, p.scale, 2, next, report}, on.exec);
    EXPECT_TRUE(status.ok()) << status.message();
    return next;
  }

  const Problem& p;
  Options options;
  Summary summary;
};

// Scores of chosen blocks for every (query head, row).
class ScoreTable {
 public:
  // asked(q_head, block). Every second head may want samples of its own.
  template <class Asked>
  ScoreTable(const RouteCase& c, const Asked& asked, int samples = 0)
      : c_(c), samples_(samples), lists_(static_cast<size_t>(c.p.n_lists())) {
    for (int64_t i = 0; i < c.p.n_lists(); ++i) {
      List& list = lists_[static_cast<size_t>(i)];
      const int head = static_cast<int>(i / c.p.rows.size());
      for (int32_t b = 0; b < row_of(i).visible_blocks; ++b)
        if (asked(head, b)) list.ids.push_back(b);
      list.score.assign(list.ids.size(), std::nanf(""));
      list.rescue.assign(list.ids.size(), std::nanf(""));
    }
  }

  // rows_at_once rows per call of the scorer, whatever it would like.
  void fill(RowScorer& scorer, Isa isa, int threads, int64_t rows_at_once = 1) {
    TestExec on(threads, isa);
    const int kv_heads = static_cast<int>(c_.p.k.view.heads);
    const int64_t n_rows = c_.p.rows.size(), items = ceil_div(n_rows, rows_at_once);
    for (int kv = 0; kv < kv_heads; kv += threads) {
      const int count = std::min(threads, kv_heads - kv);
      const Status status = scorer.begin_heads(kv, count, on.exec);
      ASSERT_TRUE(status.ok()) << status.message();
      const Status scored = on.exec.for_each(count * items, [&](int thread, int64_t i) {
        const int64_t first = i / count * rows_at_once;
        const int kv_head = kv + static_cast<int>(i % count);
        std::vector<std::vector<ScoreRequest>> requests;
        std::vector<RowRequests> rows;
        for (int64_t row = first; row < std::min(n_rows, first + rows_at_once); ++row)
          requests.push_back(requests_of(row, kv_head));
        for (size_t r = 0; r < requests.size(); ++r)
          rows.push_back({first + static_cast<int64_t>(r), requests[r]});
        scorer.score_rows(thread, kv_head, rows);
      });
      ASSERT_TRUE(scored.ok()) << scored.message();
    }
  }

  void expect_near(const ScoreTable& want, const ScoreTolerance& tolerance) const {
    double worst = 0;
    int failures = 0;
    const auto compare = [&](float got, float expected) {
      const double error = std::fabs(double{got} - double{expected});
      if (!(error <= tolerance.of(expected))) ++failures;  // NaN fails too
      worst = std::fmax(worst, error / tolerance.of(expected));
    };
    for (size_t i = 0; i < lists_.size(); ++i)
      for (size_t b = 0; b < lists_[i].ids.size(); ++b) {
        compare(lists_[i].score[b], want.lists_[i].score[b]);
        if (rescues()) compare(lists_[i].rescue[b], want.lists_[i].rescue[b]);
      }
    EXPECT_EQ(failures, 0) << "worst error is " << worst << " tolerances";
  }

  // Every pair of this table has the bits that it has in `whole`.
  void expect_bits_of(const ScoreTable& whole) const {
    for (size_t i = 0; i < lists_.size(); ++i)
      for (size_t b = 0; b < lists_[i].ids.size(); ++b) {
        const auto& all = whole.lists_[i];
        const auto at = std::ranges::lower_bound(all.ids, lists_[i].ids[b]) - all.ids.begin();
        ASSERT_EQ(lists_[i].score[b], all.score[static_cast<size_t>(at)]) << "list " << i << ", block " << b;
        if (rescues()) {
          ASSERT_EQ(lists_[i].rescue[b], all.rescue[static_cast<size_t>(at)]);
        }
      }
  }
  float score(int64_t list, int32_t block) const {
    const List& l = lists_[static_cast<size_t>(list)];
    return l.score[static_cast<size_t>(std::ranges::lower_bound(l.ids, block) - l.ids.begin())];
  }

 private:
  struct List {
    std::vector<int32_t> ids;
    std::vector<float> score, rescue;
  };
  bool rescues() const { return c_.options.router.kind == Router::kBall; }
  const Row& row_of(int64_t list) const {
    return c_.p.rows.rows[static_cast<size_t>(list % c_.p.rows.size())];
  }
  std::vector<ScoreRequest> requests_of(int64_t row, int kv_head) {
    const int group = static_cast<int>(c_.p.q.view.heads / c_.p.k.view.heads);
    std::vector<ScoreRequest> out;
    for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      List& list = lists_[static_cast<size_t>(h * c_.p.rows.size() + row)];
      out.push_back({h, list.ids, list.score.data(), rescues() ? list.rescue.data() : nullptr,
                     h % 2 == 1 ? samples_ : 0});
    }
    return out;
  }

  const RouteCase& c_;
  int samples_;
  std::vector<List> lists_;
};

// Lowest score of the blocks of a route that had to compete.
inline float cut_of(const RouteCase& c, const ScoreTable& scores, int64_t list,
                    std::span<const int32_t> route) {
  const Forced forced = Forced::of(c.p.rows.rows[static_cast<size_t>(list % c.p.rows.size())], c.options);
  float cut = std::numeric_limits<float>::infinity();
  for (const int32_t b : route)
    if (!forced.holds(b)) cut = std::min(cut, scores.score(list, b));
  return cut;
}

// Routes as sets. The reference says what a slightly narrower and a slightly wider selection would pick: everything in
// the narrow one must be there, nothing outside the wide one may be, but for blocks within rounding of the cut.
inline void expect_same_routes(const RouteCase& c, Isa isa, RouteCase::RouteStage stage) {
  const ScoreTolerance tolerance = score_tolerance(c.options.router.kind, isa);
  const double slack = std::max(tolerance.relative, 1e-5);
  Options narrow = c.options, wide = c.options;
  narrow.selection.p -= slack, wide.selection.p += slack;
  narrow.selection.threshold *= 1 + 2 * slack, wide.selection.threshold *= 1 - 2 * slack;
  narrow.selection.rescue_threshold *= 1 + 2 * slack, wide.selection.rescue_threshold *= 1 - 2 * slack;
  const Ledger least = c.route(reference::route, isa, 1, narrow),
               most = c.route(reference::route, isa, 1, wide);
  const Ledger got = c.route(stage, isa, 2);
  ScoreTable scores(c, [](int, int32_t) { return true; });
  reference::Scorer scorer(c.p.q.view, c.p.k.view, c.p.rows, c.summary, c.options.router, c.p.scale);
  scores.fill(scorer, isa, 1);
  ASSERT_EQ(got.route.size(), c.p.n_lists());
  for (int64_t list = 0; list < c.p.n_lists(); ++list) {
    const auto route = got.route[list];
    ASSERT_TRUE(std::ranges::is_sorted(route));
    for (const int32_t b : least.route[list]) {
      if (std::ranges::binary_search(route, b)) continue;
      const float cut = cut_of(c, scores, list, least.route[list]);
      EXPECT_LE(scores.score(list, b), cut + 2 * tolerance.of(cut))
          << "list " << list << " lacks block " << b;
    }
    for (const int32_t b : route) {
      if (std::ranges::binary_search(most.route[list], b)) continue;
      const float cut = cut_of(c, scores, list, most.route[list]);
      EXPECT_GE(scores.score(list, b), cut - 2 * tolerance.of(cut)) << "list " << list << " has block " << b;
    }
  }
}

}  // namespace routerelay::support
