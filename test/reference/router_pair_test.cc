// SPDX-License-Identifier: Apache-2.0
// Routers that score each pair alone: the bounds that box and ball promise, and their formulas a second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/scored.h"

namespace routerelay {
namespace {

// strict and mass compare raw scores: a pair's must not depend on its neighbours.
TEST(RawRouters, ScoreEachPairAlone) {
  Scored s({.q_tokens = 64, .k_tokens = 64 * 20});
  const auto ids = s.visible(0);
  for (Router kind : {Router::kCentroid, Router::kBox, Router::kBall}) {
    const auto together = s.score({.kind = kind}, 0, 0, ids);
    for (int32_t id : ids)
      EXPECT_EQ(s.score({.kind = kind}, 0, 0, {id})[0], together[static_cast<size_t>(id)]);
  }
}

// 10^4 (query, block) pairs of all sorts: tight and wide blocks, long and short queries, keys far from the origin.
TEST(Bounds, BoxAndBallCoverEveryKey) {
  ProblemArgs args{.q_tokens = 100, .k_tokens = 100 * 64 - 30, .q_block = 1};
  args.sequences = {{0, 100, 0, args.k_tokens, args.k_tokens}};  // every query sees every key
  Scored unused(args);
  Problem& p = unused.p;
  Philox random(9, 0);
  std::vector<double> spread, centre, length;
  for (int i = 0; i < 100; ++i) {
    spread.push_back(std::exp(2 * random.normal()));
    centre.push_back(3 * random.normal());
    length.push_back(std::exp(random.normal()));
  }
  p.k.fill([&](int64_t t, int64_t, int64_t) {
    const auto b = static_cast<size_t>(t / 64);
    return centre[b] + spread[b] * random.normal();
  });
  p.q.fill([&](int64_t t, int64_t, int64_t) { return length[static_cast<size_t>(t)] * random.normal(); });
  Summary& s = unused.summary;
  support::TestExec exec;
  RR_ASSERT_OK(reference::summarize({p.k.view, p.v.view, p.rows, kEverything, s}, exec.exec));
  const auto ids = unused.visible(0);
  ASSERT_EQ(ids.size(), 100u);
  for (int64_t row = 0; row < 100; ++row) {
    const auto box = unused.score({.kind = Router::kBox}, row, 0, ids);
    const double norm = std::sqrt([&] {
      double sum = 0;
      for (int64_t c = 0; c < 64; ++c) sum += std::pow(static_cast<double>(p.q.get(row, 0, c)), 2);
      return sum;
    }());
    for (int32_t b : ids) {
      double highest = -std::numeric_limits<double>::infinity(), base = 0;
      for (int64_t t = b * 64; t < std::min<int64_t>(b * 64 + 64, args.k_tokens); ++t)
        highest = std::max(highest, dot(p, row, 0, t, 0));
      for (int64_t c = 0; c < 64; ++c)
        base += static_cast<double>(p.q.get(row, 0, c)) *
                static_cast<double>(s.mean[static_cast<size_t>(b * 64 + c)]);
      const double ball = base + norm * static_cast<double>(s.radius[static_cast<size_t>(b)]);
      const double slack =
          1e-6 * (norm + 1) * (std::fabs(highest) + 1);  // scores and radii are stored in f32
      ASSERT_GE(box[static_cast<size_t>(b)], p.scale * (highest - slack)) << row << " " << b;
      ASSERT_GE(ball, highest - slack) << row << " " << b;
    }
  }
}

TEST(Box, TakesTheBestQueryOfTheRow) {
  Scored s({.q_tokens = 40, .k_tokens = 200});
  const auto ids = s.visible(0);
  const auto score = s.score({.kind = Router::kBox}, 0, 0, ids);
  for (int32_t b : ids) {
    double best = -1e9;
    for (int64_t t = 0; t < 40; ++t) {
      double bound = 0;
      for (int64_t c = 0; c < 64; ++c) {
        const auto i = static_cast<size_t>(b * 64 + c);
        const double q = s.p.q.get(t, 0, c);
        bound += q > 0 ? q * s.summary.box_max[i] : q * s.summary.box_min[i];
      }
      best = std::max(best, bound);
    }
    EXPECT_NEAR(score[static_cast<size_t>(b)], s.p.scale * best, 1e-5);
  }
}

// One query per row, so that the score is the logit itself and beta can be read off the difference.
TEST(Ball, LiftsOnlyUnusuallyWideBlocks) {
  constexpr int kBlocks = 40;
  Scored s({.q_tokens = 1, .k_tokens = kBlocks * 64 + 10});
  s.p.k.fill([](int64_t t, int64_t, int64_t c) {  // block b: keys at +-(b + 1) along channel 0
    return c == 0 ? (t % 2 == 0 ? 1 : -1) * static_cast<double>(t / 64 + 1) : 0;
  });
  support::TestExec exec;
  RR_ASSERT_OK(reference::summarize({s.p.k.view, s.p.v.view, s.p.rows, kEverything, s.summary}, exec.exec));
  const auto ids = s.visible(0);
  std::vector<float> rescue;
  const auto base = s.score({.kind = Router::kBall}, 0, 0, ids, &rescue);
  double norm = 0;
  for (int64_t c = 0; c < 64; ++c) norm += std::pow(static_cast<double>(s.p.q.get(0, 0, c)), 2);
  norm = std::sqrt(norm);
  // Radii are 1 .. 40 (the partial block's 41 is not counted): nearest-rank median 20, 90th percentile 36.
  for (int b = 0; b < kBlocks; ++b) {
    const double radius = b + 1, beta = std::clamp((radius - 20) / 16, 0.0, 1.0);
    EXPECT_NEAR(base[static_cast<size_t>(b)], 0, 1e-5);
    EXPECT_NEAR(rescue[static_cast<size_t>(b)], s.p.scale * norm * radius * beta, 1e-4) << b;
  }
}

TEST(Ball, FewBlocksOrEqualRadiiLiftNothing) {
  Scored few({.q_tokens = 64, .k_tokens = 15 * 64 + 63});
  std::vector<float> rescue;
  EXPECT_EQ(few.score({.kind = Router::kBall}, 0, 0, few.visible(0), &rescue), rescue);
  Scored equal({.q_tokens = 64, .k_tokens = 40 * 64});
  equal.p.k.fill([](int64_t t, int64_t, int64_t) { return t % 2; });
  support::TestExec exec;
  RR_ASSERT_OK(reference::summarize(
      {equal.p.k.view, equal.p.v.view, equal.p.rows, kEverything, equal.summary}, exec.exec));
  EXPECT_EQ(equal.score({.kind = Router::kBall}, 0, 0, equal.visible(0), &rescue), rescue);
}

TEST(Ball, AddsUpTheRowsQueries) {
  Scored s({.q_tokens = 30, .k_tokens = 128});
  const auto score = s.score({.kind = Router::kBall}, 0, 0, {0});
  double sum = 0;
  for (int64_t t = 0; t < 30; ++t) {
    double base = 0;
    for (int64_t c = 0; c < 64; ++c)
      base += static_cast<double>(s.p.q.get(t, 0, c)) *
              static_cast<double>(s.summary.mean[static_cast<size_t>(c)]);
    sum += std::exp(s.p.scale * base);
  }
  EXPECT_NEAR(score[0], std::log(sum), 1e-6);
}

}  // namespace
}  // namespace routerelay
