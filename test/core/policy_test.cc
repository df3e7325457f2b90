// SPDX-License-Identifier: Apache-2.0
// The rules of selection and relay on score matrices written by hand, against brute force and as identities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/policy/relay_rows.h"
#include "core/policy/route_rows.h"
#include "core/policy/select.h"
#include "core/rng.h"
#include "support/exec.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::TestExec;
using testing::AnyOf;
using testing::ElementsAre;
using testing::IsSubsetOf;

// A row that sees `visible` whole blocks, the last of them its diagonal.
Row row_of(int32_t visible) {
  Row row;
  row.q_count = 64;
  row.visible_blocks = visible;
  row.visible_keys = int64_t{64} * visible;
  row.position = row.visible_keys - 64;
  row.diagonal = visible - 1;
  return row;
}

Options raw_options(Selection selection) {
  Options o;
  o.dense = false;
  o.router.kind = Router::kCentroid;
  o.selection.kind = selection;
  o.relay.mode = Relay::kOff;
  return o;
}

Selected select(const Row& row, const Options& options, const std::vector<float>& score,
                std::vector<float> rescue = {}) {
  std::vector<int32_t> ids(score.size());
  std::iota(ids.begin(), ids.end(), 0);
  SelectScratch scratch;
  Selected out;
  select_blocks(row, options, {ids, score, rescue}, scratch, out);
  return out;
}

TEST(Select, CountIsTheFloorWithForcedBlocksInsideIt) {
  EXPECT_EQ(floor_count(row_of(1), {}), 1);
  EXPECT_EQ(floor_count(row_of(40), {}), 4);
  EXPECT_EQ(floor_count(row_of(200), {}), 10);
  // c = 4: sink, diagonal, and the two best of the rest.
  const Selected s = select(row_of(8), raw_options(Selection::kTopK), {0, 5, 1, 9, 2, 3, 4, 0});
  EXPECT_THAT(s.route, ElementsAre(0, 1, 3, 7));
  EXPECT_EQ(s.competitors, 2);
}

TEST(Select, TiesGoToTheSmallerIdAndNanRanksLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(select(row_of(8), raw_options(Selection::kTopK), {0, 1, 1, 1, 1, 1, 1, 0}).route,
              ElementsAre(0, 1, 2, 7));
  EXPECT_THAT(select(row_of(8), raw_options(Selection::kTopK), {0, nan, -5, nan, -7, nan, -9, 0}).route,
              ElementsAre(0, 2, 4, 7));
  EXPECT_THAT(select(row_of(6), raw_options(Selection::kTopK), std::vector<float>(6, nan)).route,
              ElementsAre(0, 1, 2, 5));
}

TEST(Select, TopPTakesTheSmallestPrefixBetweenFloorAndCap) {
  Options o = raw_options(Selection::kTopP);
  o.router.kind = Router::kSampled;  // scores are shares already
  o.selection.p = 0.9;
  o.selection.floor = 0;
  // .50 + .20 + .15 = .85 < .9: the block of .06 is needed too; forced blocks' mass counts.
  EXPECT_THAT(select(row_of(8), o, {.5f, .02f, .15f, .06f, .03f, .02f, .02f, .2f}).route,
              ElementsAre(0, 2, 3, 7));
  o.selection.cap = 0.125;
  EXPECT_THAT(select(row_of(8), o, {.5f, .02f, .15f, .06f, .03f, .02f, .02f, .2f}).route,
              ElementsAre(0, 2, 7));
  o.selection.cap = 1;
  o.selection.p = 1;
  EXPECT_EQ(select(row_of(8), o, std::vector<float>(8, .125f)).route.size(), 8u);
}

TEST(Select, ThresholdIsRelativeToTheBestAndBallUnitesTwoMasks) {
  Options o = raw_options(Selection::kThreshold);
  o.selection.threshold = std::exp(-1.5);
  EXPECT_THAT(select(row_of(6), o, {0, 2, 1, 0.4f, 2.5f, 0}).route, ElementsAre(0, 1, 2, 4, 5));
  o.router.kind = Router::kBall;
  o.selection.rescue_threshold = 0.5;
  EXPECT_THAT(select(row_of(6), o, {0, 2, 1, 0.4f, 2.5f, 0}, {0, 0, 0, 9, 0, 0}).route,
              ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Select, NearHoldsTheNextRanksOnly) {
  Options o = raw_options(Selection::kTopK);
  o.relay.mode = Relay::kScreen;
  o.relay.near = 0.5;  // of c = 4
  const Selected s = select(row_of(8), o, {9, 5, 1, 9, 2, 3, 4, 9});
  EXPECT_THAT(s.route, ElementsAre(0, 1, 3, 7));
  EXPECT_THAT(s.near, ElementsAre(5, 6));
}

// However many ranks are sorted at a time, they come as from one sort.
TEST(Select, RanksComeInOrder) {
  std::vector<float> score;
  Philox random(3, 0);
  for (int i = 0; i < 300; ++i) score.push_back(static_cast<float>(random.below(40)));
  score[7] = std::numeric_limits<float>::quiet_NaN();
  std::vector<uint32_t> sorted(score.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::ranges::stable_sort(sorted, [&](uint32_t a, uint32_t b) {
    return std::isnan(score[b]) ? !std::isnan(score[a]) : score[a] > score[b];
  });
  for (const int32_t step : {0, 1, 2, 50, 299, 300, 1000}) {
    Ranking ranking;
    ranking.begin(score);
    ranking.expect(step);
    for (uint32_t rank = 0; rank < ranking.size(); ++rank) ASSERT_EQ(ranking.at(rank), sorted[rank]) << step;
  }
}

TEST(Select, FarLimitsDoNotWrapAround) {
  Options o = raw_options(Selection::kTopK);
  o.relay.mode = Relay::kScreen;
  o.relay.near = 1e6;
  EXPECT_GE(challengers_of(o.relay, 0, 3000).near, 3000);
}

// Scores come from a matrix [rows, blocks] that a test changes between layers.
class MatrixScorer : public RowScorer {
 public:
  MatrixScorer(int64_t rows, int64_t blocks, uint64_t seed)
      : blocks_(blocks), values_(static_cast<size_t>(rows * blocks)) {
    drift(1, seed);
  }
  void drift(double size, uint64_t seed) {
    Philox random(seed, 5);
    for (float& v : values_) v += static_cast<float>(size * random.normal());
  }
  void score(int, int64_t row, int, std::span<const ScoreRequest> requests) override {
    for (const ScoreRequest& r : requests) {
      for (size_t i = 0; i < r.ids.size(); ++i) r.score[i] = at(row, r.ids[i]);
      most_samples = std::max(most_samples.load(), r.samples);
      if (r.samples > 0) {
        EXPECT_TRUE(r.samples == 4 || r.samples * static_cast<int64_t>(r.ids.size()) <= 3 * blocks_);
      }
      ++(r.samples > 0 ? candidates : whole);
    }
  }
  float& at(int64_t row, int64_t block) { return values_[static_cast<size_t>(row * blocks_ + block)]; }
  std::atomic<int64_t> candidates = 0, whole = 0;  // requests
  std::atomic<int> most_samples = 0;

 private:
  int64_t blocks_;
  std::vector<float> values_;
};

// Rows that see every block, so that each layer's route can be worked out from its matrix.
struct Layers {
  static constexpr int64_t kRows = 12, kBlocks = 96;
  Options options = raw_options(Selection::kTopK);
  MatrixScorer scorer{kRows, kBlocks, 3};
  Tensor q = contiguous(static_cast<const void*>(nullptr), DType::kF32, kRows * 64, 1, 64);
  Tensor k = contiguous(static_cast<const void*>(nullptr), DType::kF32, kBlocks * 64, 1, 64);
  Rows rows;
  Summary summary;
  Ledger ledger, next;
  Proposal proposal;
  TestExec on{2};
  int layer = 2;

  Layers() {
    const Sequence all{0, kRows * 64, 0, kBlocks * 64, kBlocks * 64};
    rows = make_rows({&all, 1}, 64, 64);
    options.selection.k = 8;
  }
  LayerReport run() {
    LayerReport report;
    expect_ok(relay_rows({q, k, rows, summary, options, ledger, 1, layer, false, proposal, report}, scorer,
                         scorer, on.exec));
    expect_ok(route_rows({q, k, rows, summary, options, proposal, ledger, 1, layer, next, report}, scorer,
                         on.exec));
    std::swap(ledger, next);
    ++layer;
    return report;
  }
  // What full routing would pick in this layer.
  std::vector<int32_t> full_route(int64_t row) {
    std::vector<float> score(kBlocks);
    for (int64_t b = 0; b < kBlocks; ++b) score[static_cast<size_t>(b)] = scorer.at(row, b);
    Options off = options;
    off.relay.mode = Relay::kOff;
    return select(rows.rows[static_cast<size_t>(row)], off, score).route;
  }
  bool all_full() {
    for (int64_t r = 0; r < kRows; ++r)
      if (!std::ranges::equal(ledger.route[r], full_route(r))) return false;
    return true;
  }

 private:
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
};

// With so many challengers rescoring costs more than full scoring: the guard takes over, and nothing is lost either.
TEST(Relay, StrictWithEveryOtherBlockAsChallengerScoresInFull) {
  Layers l;
  l.options.relay.mode = Relay::kStrict;
  l.options.relay.near_blocks = 500;
  l.options.relay.probes = 0;
  for (int i = 0; i < 6; ++i) {
    const LayerReport r = l.run();
    EXPECT_EQ(r.rows_by_cause[static_cast<size_t>(i == 0 ? Cause::kFirst : Cause::kShort)], Layers::kRows);
    EXPECT_TRUE(l.all_full()) << i;
    l.scorer.drift(0.2, 100 + static_cast<uint64_t>(i));
  }
}

TEST(Relay, StrictKeepsAnUnchangedRouteAndRefreshesABeatenOne) {
  Layers l;
  l.options.relay.mode = Relay::kStrict;
  l.run();
  EXPECT_EQ(l.run().kept_rows, Layers::kRows);
  // The best challenger of row 5 moves past the route.
  l.scorer.at(5, l.ledger.near[5][0]) += 100;
  const LayerReport r = l.run();
  EXPECT_EQ(r.kept_rows, Layers::kRows - 1);
  EXPECT_EQ(r.rows_by_cause[static_cast<size_t>(Cause::kFired)], 1);
  EXPECT_EQ(l.ledger.age[5], 0);
  EXPECT_EQ(l.ledger.age[4], 2);
  EXPECT_TRUE(l.all_full());
}

TEST(Relay, MassWithDeltaZeroEqualsStrict) {
  Layers strict, mass;
  strict.options.relay.mode = Relay::kStrict;
  mass.options.relay.mode = Relay::kMass;
  mass.options.relay.delta = 0;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(strict.run().kept_rows, mass.run().kept_rows);
    EXPECT_EQ(strict.ledger.route.ids, mass.ledger.route.ids);
    strict.scorer.drift(0.02, 50 + static_cast<uint64_t>(i));
    mass.scorer.drift(0.02, 50 + static_cast<uint64_t>(i));
  }
}

TEST(Relay, CertifyEqualsFullRoutingAndSparesTheSorting) {
  Layers l;
  l.options.relay.mode = Relay::kCertify;
  for (int i = 0; i < 6; ++i) {
    const LayerReport r = l.run();
    EXPECT_TRUE(l.all_full()) << i;
    if (i > 0) {
      EXPECT_GE(r.survivors, Layers::kRows * 8);
      EXPECT_LT(r.survivors, Layers::kRows * Layers::kBlocks / 2);
    }
    l.scorer.drift(0.3, 70 + static_cast<uint64_t>(i));
  }
}

TEST(Relay, FixedRefreshesEveryHorizonLayers) {
  Layers l;
  l.options.relay.mode = Relay::kFixed;
  l.options.relay.horizon = 4;
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(l.run().kept_rows, i % 4 == 0 ? 0 : Layers::kRows) << i;
    l.scorer.drift(0.1, 7);
  }
}

TEST(Relay, RepairReranksWhatItRemembersAndCountsSwaps) {
  Layers l;
  l.options.relay.mode = Relay::kRepair;
  l.options.relay.horizon = 255;
  l.run();
  const int32_t challenger = l.ledger.near[3][0];
  l.scorer.at(3, challenger) += 100;
  const LayerReport r = l.run();
  EXPECT_EQ(r.swaps, 1);
  EXPECT_EQ(l.ledger.swaps[3], 1);
  EXPECT_THAT(std::vector<int32_t>({challenger}), IsSubsetOf(l.ledger.route[3]));
  EXPECT_LT(r.scored_blocks, Layers::kRows * Layers::kBlocks / 2);
}

TEST(Relay, RepairPaysInFullForSwapsAndForProbes) {
  Layers l;
  l.options.relay.mode = Relay::kRepair;
  l.options.relay.max_swaps = 0;
  l.run();
  l.scorer.at(3, l.ledger.near[3][0]) += 100;
  LayerReport r = l.run();
  EXPECT_EQ(r.rows_by_cause[static_cast<size_t>(Cause::kSwaps)], 1);
  EXPECT_EQ(l.ledger.age[3], 0);
  l.options.relay.max_swaps = 1000;
  l.options.relay.probe_forces = true;
  l.scorer.at(6, l.ledger.probes[6][0]) += 100;
  r = l.run();
  EXPECT_EQ(r.rows_by_cause[static_cast<size_t>(Cause::kProbe)], 1);
}

TEST(Relay, ScreenFindsWhatTheLedgerNeverSaw) {
  Layers l;
  l.options.relay.mode = Relay::kScreen;
  l.run();
  int32_t unseen = 0;
  while (std::ranges::binary_search(l.ledger.route[2], unseen) ||
         std::ranges::binary_search(l.ledger.near[2], unseen))
    ++unseen;
  l.scorer.at(2, unseen) += 100;
  const LayerReport r = l.run();
  EXPECT_THAT(std::vector<int32_t>({unseen}), IsSubsetOf(l.ledger.route[2]));
  EXPECT_EQ(r.screened_blocks, Layers::kRows * Layers::kBlocks);
  EXPECT_LT(r.scored_blocks, Layers::kRows * Layers::kBlocks / 2);
}

// Not for a repaired row, which may have to pay in full as well: its second scoring is one of all blocks.
TEST(Relay, MoreQueriesSpeakForFewerBlocks) {
  for (const Relay mode : {Relay::kScreen, Relay::kRepair}) {
    Layers l;
    l.options.relay.mode = mode;
    l.options.relay.max_swaps = 0;
    l.options.router.candidate_samples = 16;
    l.run();
    EXPECT_EQ(l.scorer.candidates, 0);
    EXPECT_EQ(l.scorer.whole, Layers::kRows);
    l.scorer.at(3, l.ledger.near[3][0]) += 100;
    l.run();
    EXPECT_EQ(l.scorer.candidates, Layers::kRows);
    EXPECT_EQ(l.scorer.whole, mode == Relay::kScreen ? 2 * Layers::kRows : Layers::kRows + 1);
    if (mode == Relay::kRepair) {
      EXPECT_EQ(l.scorer.most_samples, 4);
      continue;
    }
    EXPECT_THAT(l.scorer.most_samples.load(), AnyOf(8, 16));  // of 96 blocks a quarter or two are left
    l.options.router.candidate_samples = 0;
    l.scorer.most_samples = 0;
    l.run();
    EXPECT_EQ(l.scorer.most_samples, 4);
  }
}

TEST(Relay, ShortRowsAreScoredInFull) {
  Layers l;
  l.options.relay.mode = Relay::kStrict;
  l.options.relay.near_blocks = 40;  // 2 w > 96
  l.run();
  EXPECT_EQ(l.run().rows_by_cause[static_cast<size_t>(Cause::kShort)], Layers::kRows);
}

TEST(Relay, ProbesDoNotDependOnBatchMates) {
  // The same sequence alone, and as the second of two: equal routes, near blocks, probes and ages.
  const Sequence a{0, 256, 0, 64 * 96, 64 * 96}, b{256, 256, 64 * 96, 64 * 96, 64 * 96},
      alone{0, 256, 0, 64 * 96, 64 * 96};
  const auto run = [](std::vector<Sequence> sequences, int64_t first_row) {
    Layers l;
    l.options.relay.mode = Relay::kRepair;
    l.rows = make_rows(sequences, 64, 64);
    MatrixScorer matrix(l.rows.size(), 96, 1);
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t block = 0; block < 96; ++block)
        matrix.at(first_row + r, block) =
            static_cast<float>(std::sin(static_cast<double>(r * 97 + block * block)));
    LayerReport report;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(
          relay_rows({l.q, l.k, l.rows, l.summary, l.options, l.ledger, 1, i, false, l.proposal, report},
                     matrix, matrix, l.on.exec)
              .ok());
      EXPECT_TRUE(
          route_rows({l.q, l.k, l.rows, l.summary, l.options, l.proposal, l.ledger, 1, i + 2, l.next, report},
                     matrix, l.on.exec)
              .ok());
      std::swap(l.ledger, l.next);
    }
    return l.ledger;
  };
  const Ledger both = run({a, b}, 4), one = run({alone}, 0);
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_TRUE(std::ranges::equal(both.route[4 + r], one.route[r]));
    EXPECT_TRUE(std::ranges::equal(both.near[4 + r], one.near[r]));
    EXPECT_TRUE(std::ranges::equal(both.probes[4 + r], one.probes[r]));
  }
}

}  // namespace
}  // namespace routerelay
