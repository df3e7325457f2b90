// SPDX-License-Identifier: Apache-2.0
// The CPU's scores and routes against the reference's: every router on every ISA, odd lengths, heads, offsets and
// blocks, candidates as well as whole rows, broken input.
#include "cpu/route/route.h"

#include <gtest/gtest.h>

#include "cpu/isa/tile_scalar.h"
#include "cpu/isa_test.h"
#include "cpu/route/kernel_softmax.h"
#include "cpu/route/scorer.h"
#include "cpu/route/softmax_scorer.h"
#include "cpu/route_case.h"
#include "reference/reference.h"
#include "reference/scorer.h"
#include "support/exec.h"
#include "support/problem.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Problem;
using support::ProblemArgs;
using support::RouteCase;
using support::TestExec;

constexpr Router kRouters[] = {Router::kCentroid, Router::kSub, Router::kSampled,
                               Router::kAntidiag, Router::kBox, Router::kBall};

class RouteTest : public support::IsaTest<std::tuple<Isa, Router>> {
 protected:
  Router router() const { return std::get<1>(GetParam()); }
  Options options(int block = 64) const {
    Options o = Options::from_preset("balanced").value();
    o.router.kind = router();
    o.relay.mode = Relay::kOff;
    o.q_block = o.k_block = block;
    return o;
  }
};

// Routers whose score of a pair is the pair's alone.
class PairRouteTest : public RouteTest {};

// Each requests' blocks: all of them, or the ones that `asked(head, block)` names.
template <class Asked>
void expect_scores(const Problem& p, const Options& o, Isa isa, const Asked& asked, int samples = 0) {
  RouteCase c(p, o);
  support::ScoreTable want(c, asked, samples), got(c, asked, samples);
  reference::Scorer reference(p.q.view, p.k.view, p.rows, c.summary, o.router, p.scale);
  want.fill(reference, isa, 1);
  const auto scorer = cpu::make_scorer({p.q.view, p.k.view, p.rows, c.summary, o.router, p.scale}, isa);
  got.fill(*scorer, isa, 2);
  got.expect_near(want, support::score_tolerance(o.router.kind, isa));
}

const auto kAll = [](int, int32_t) { return true; };
const auto kSome = [](int head, int32_t block) { return (block * 7 + head * 3) % 5 < 2; };

TEST_P(RouteTest, ScoresMatchTheReferenceAtOddLengths) {
  for (const int64_t tokens : {0, 1, 63, 64, 65, 127, 1000})
    for (const int block : {64, 128}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, blocks of " << block);
      const Problem p({.q_tokens = tokens, .k_tokens = tokens, .q_block = block, .k_block = block});
      expect_scores(p, options(block), isa(), kAll);
      expect_scores(p, options(block), isa(), kSome);
    }
}

TEST_P(RouteTest, ScoresMatchTheReferenceForHeadsAndTypes) {
  struct Heads {
    int64_t q, kv;
  };
  for (const auto [q, kv] : {Heads{3, 3}, Heads{9, 3}, Heads{14, 2}, Heads{8, 1}})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0}) {
      SCOPED_TRACE(testing::Message() << q << " heads on " << kv << ", " << dtype_name(dtype));
      ProblemArgs args{.q_tokens = 75, .k_tokens = 330, .q_heads = q, .kv_heads = kv};
      args.head_dim = q == 3 && dtype != DType::kQ8_0 ? 80 : q <= 9 ? 96 : q == 14 ? 128 : 256;
      args.layout = q == 9 ? support::Layout::kPadded : support::Layout::kHeadMajor;
      const Problem p(support::with_dtype(args, dtype));
      expect_scores(p, options(), isa(), kAll);
      expect_scores(p, options(), isa(), kSome);
    }
}

TEST_P(RouteTest, ScoresMatchTheReferenceInRaggedBatchesAtAnyOffset) {
  ProblemArgs args{.q_tokens = 400, .k_tokens = 2000, .q_heads = 4, .kv_heads = 2};
  args.sequences = {{0, 70, 3, 500, 430},      {70, 1, 503, 1, 0},      {71, 0, 504, 10, 10},
                    {80, 131, 600, 1201, 601}, {220, 100, 1900, 50, 0},  // queries beyond the keys
                    {330, 64, 1950, 50, 1000}};
  for (const int block : {64, 128}) {
    args.q_block = args.k_block = block;
    const Problem p(args);
    expect_scores(p, options(block), isa(), kAll);
    expect_scores(p, options(block), isa(), kSome);
  }
}

TEST_P(RouteTest, OtherSizesOfTheRouter) {
  const Problem p({.q_tokens = 200, .k_tokens = 777, .q_heads = 2});
  for (const int size : {1, 2, 4, 16, 32}) {
    SCOPED_TRACE(size);
    Options o = options();
    o.router.samples = size == 32 ? 64 : size;
    o.router.sub_q = o.router.sub_k = o.router.stride = size;
    if (size > 1) expect_scores(p, o, isa(), kAll);
    expect_scores(p, o, isa(), kSome);
  }
}

// More of them than a pass over all blocks would hold, and fewer; rows that end early draw some twice.
TEST_P(RouteTest, ARequestMayNameItsOwnSamples) {
  const Problem p({.q_tokens = 230, .k_tokens = 1300, .q_heads = 14, .kv_heads = 2});
  for (const int samples : {1, 16, 64}) {
    SCOPED_TRACE(samples);
    Options o = options();
    o.router.candidate_samples = 64;
    expect_scores(p, o, isa(), kAll, samples);
    expect_scores(p, o, isa(), kSome, samples);
  }
}

// Relay's strict mode compares scores of different calls.
TEST_P(PairRouteTest, AScoreOfAPairDoesNotDependOnTheOthers) {
  const Problem p({.q_tokens = 130, .k_tokens = 2500, .q_heads = 2});
  const Options o = options();
  RouteCase c(p, o);
  support::ScoreTable all(c, kAll), some(c, kSome);
  const auto scorer = cpu::make_scorer({p.q.view, p.k.view, p.rows, c.summary, o.router, p.scale}, isa());
  all.fill(*scorer, isa(), 1);
  some.fill(*scorer, isa(), 2);
  some.expect_bits_of(all);
}

TEST_P(RouteTest, AScoreDoesNotDependOnTheRowsBesideIt) {
  ProblemArgs args{.q_tokens = 450, .k_tokens = 900, .q_heads = 4, .kv_heads = 2};
  args.sequences = {{0, 300, 0, 700, 400}, {300, 150, 700, 200, 50}};
  const Problem p(args);
  const Options o = options();
  RouteCase c(p, o);
  const auto scorer = cpu::make_scorer({p.q.view, p.k.view, p.rows, c.summary, o.router, p.scale}, isa());
  for (const bool whole : {true, false}) {
    const auto asked = [whole](int head, int32_t block) { return whole || kSome(head, block); };
    support::ScoreTable alone(c, asked), together(c, asked);
    alone.fill(*scorer, isa(), 1);
    together.fill(*scorer, isa(), 2, 5);
    together.expect_bits_of(alone);
  }
}

TEST_P(RouteTest, AScoreDoesNotDependOnBatchMates) {
  ProblemArgs args{.q_tokens = 460, .k_tokens = 2200, .q_heads = 2};
  const Sequence first{0, 60, 0, 190, 130},
      second{60, 400, 190, 2000, 1600};  // three blocks before the second
  args.sequences = {first, second};
  const Problem batch(args);
  args.sequences = {second};
  const Problem alone(args);
  const Options o = options();
  RouteCase with(batch, o), without(alone, o);
  const auto scorer_of = [&](const Problem& p, const RouteCase& c) {
    return cpu::make_scorer({p.q.view, p.k.view, p.rows, c.summary, o.router, p.scale}, isa());
  };
  support::ScoreTable got(with, kAll), want(without, kAll);
  got.fill(*scorer_of(batch, with), isa(), 2);
  want.fill(*scorer_of(alone, without), isa(), 1);
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t row = 0; row < alone.rows.size(); ++row) {
      const int64_t list = head * batch.rows.size() + batch.rows.size() - alone.rows.size() + row;
      for (int32_t b = 0; b < alone.rows.rows[static_cast<size_t>(row)].visible_blocks; ++b)
        ASSERT_EQ(got.score(list, b), want.score(head * alone.rows.size() + row, b))
            << row << ", block " << b;
    }
}

TEST_P(RouteTest, RoutesMatchTheReference) {
  for (const char* preset : {"balanced", "careful"})
    for (const Selection selection : {Selection::kTopK, Selection::kThreshold, Selection::kTopP}) {
      SCOPED_TRACE(testing::Message() << preset << ", " << name_of(selection));
      Options o = Options::from_preset(preset).value();
      o.router.kind = router();
      o.relay.mode = Relay::kOff;
      o.selection.kind = selection;
      const Problem p({.q_tokens = 200, .k_tokens = 1300, .q_heads = 2, .kv_heads = 1, .seed = 5});
      support::expect_same_routes(RouteCase(p, o), isa(), cpu::route);
    }
}

TEST_P(RouteTest, ThreadsChangeNoBit) {
  const Problem p({.q_tokens = 500, .k_tokens = 1500, .q_heads = 6, .kv_heads = 3});
  const Options o = options();
  RouteCase c(p, o);
  const Ledger one = c.route(cpu::route, isa(), 1), four = c.route(cpu::route, isa(), 4);
  EXPECT_EQ(one.route.offsets, four.route.offsets);
  EXPECT_EQ(one.route.ids, four.route.ids);
  EXPECT_EQ(one.near.ids, four.near.ids);
}

TEST_P(RouteTest, BrokenInputHurtsNoOtherRow) {
  Problem p({.q_tokens = 500, .k_tokens = 500, .q_heads = 2});
  const Options o = options();
  const Ledger clean = RouteCase(p, o).route(cpu::route, isa(), 2);
  p.q.set(130, 0, 5, std::numeric_limits<float>::quiet_NaN());
  p.q.set(131, 1, 5, std::numeric_limits<float>::infinity());
  p.k.set(400, 0, 7, std::numeric_limits<float>::quiet_NaN());
  p.k.set(401, 0, 7, -std::numeric_limits<float>::infinity());
  const Ledger broken = RouteCase(p, o).route(cpu::route, isa(), 2);
  for (int64_t list = 0; list < p.n_lists(); ++list) {
    const int64_t row = list % p.rows.size();
    if (row == 2 || row >= 6) continue;  // the row of the broken queries, those that see the broken keys
    EXPECT_TRUE(std::ranges::equal(clean.route[list], broken.route[list])) << "list " << list;
  }
}

// AMX's manners on every machine: packing clears the rows that fill up a step, scores are stored for them too.
struct SteppingTile : cpu::TileScalar {
  static constexpr int kRowStep = 16;
  static void pack_rows(const std::byte* q, DType dtype, int64_t token_stride, int M, int D, float factor,
                        float* out) {
    TileScalar::pack_rows(q, dtype, token_stride, M, D, factor, out);
    std::fill(out + M * D, out + cpu::round_up(M, kRowStep) * D, 0.0f);
  }
  static void scores(const float* rows, int M, const float* panel, int D, float* s, int64_t s_pitch,
                     cpu::Ahead* ahead = nullptr) {
    TileScalar::scores(rows, static_cast<int>(cpu::round_up(M, kRowStep)), panel, D, s, s_pitch, ahead);
  }
};

TEST(RouteRowStepTest, ATileThatStoresWholeStepsOverwritesNobodysScores) {
  const cpu::SoftmaxKernel kernel = cpu::make_softmax_kernel<SteppingTile>();
  const Problem p({.q_tokens = 300, .k_tokens = 700, .q_heads = 6, .kv_heads = 2});
  for (const Router router : {Router::kSub, Router::kSampled, Router::kAntidiag}) {
    SCOPED_TRACE(name_of(router));
    Options o = Options::from_preset("balanced").value();
    o.router.kind = router;
    RouteCase c(p, o);
    cpu::SoftmaxScorer scorer({p.q.view, p.k.view, p.rows, c.summary, o.router, p.scale}, kernel,
                              cpu::kPairScalar);
    reference::Scorer reference(p.q.view, p.k.view, p.rows, c.summary, o.router, p.scale);
    for (const bool whole : {true, false}) {
      const auto asked = [whole](int head, int32_t block) { return whole || kSome(head, block); };
      support::ScoreTable want(c, asked), got(c, asked);
      want.fill(reference, Isa::kScalar, 1);
      got.fill(scorer, Isa::kScalar, 2, 3);
      got.expect_near(want, support::score_tolerance(router, Isa::kScalar));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RouteTest,
                         ::testing::Combine(support::kEveryIsa, ::testing::ValuesIn(kRouters)),
                         support::CaseName());
INSTANTIATE_TEST_SUITE_P(
    EveryIsa, PairRouteTest,
    ::testing::Combine(support::kEveryIsa, ::testing::Values(Router::kCentroid, Router::kBox, Router::kBall)),
    support::CaseName());

}  // namespace
}  // namespace routerelay
