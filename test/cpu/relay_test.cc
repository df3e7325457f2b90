// SPDX-License-Identifier: Apache-2.0
// The CPU's proposals against the reference's, for every relay mode on every ISA, with the ledger of a slightly
// different layer before.
#include "cpu/relay/relay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "cpu/isa_test.h"
#include "cpu/route/route.h"
#include "cpu/route_case.h"
#include "reference/reference.h"

namespace routerelay {
namespace {

using support::Problem;
using support::ProblemArgs;
using support::RouteCase;
using support::TestExec;

class RelayTest : public support::IsaTest<std::tuple<Isa, Relay>> {
 protected:
  Options options() const {
    Options o = Options::from_preset("balanced").value();
    o.relay.mode = std::get<1>(GetParam());
    // strict and mass compare raw scores of different calls; screen and repair suit the preset's router.
    if (o.relay.mode == Relay::kStrict || o.relay.mode == Relay::kMass) o.router.kind = Router::kCentroid;
    o.relay.near_blocks = 3;
    o.relay.probes = 2;
    o.relay.gamma = 0.01;
    return o;
  }
};

constexpr ProblemArgs kArgs{.q_tokens = 700, .k_tokens = 2300, .q_heads = 4, .kv_heads = 2};

// kArgs' layer before: the same keys, queries that point a little elsewhere.
Problem earlier_layer() {
  Problem p(kArgs);
  Philox random(9, 0);
  p.q.fill([&](int64_t t, int64_t h, int64_t c) { return p.q.get(t, h, c) + 0.3 * random.normal(); });
  return p;
}

Proposal propose(const RouteCase& c, RouteCase::RelayStage stage, const Ledger& ledger, Isa isa, int threads,
                 LayerReport& report) {
  TestExec on(threads, isa);
  Proposal proposal;
  const Status status = stage(
      {c.p.q.view, c.p.k.view, c.p.rows, c.summary, c.options, ledger, c.p.scale, 1, false, proposal, report},
      on.exec);
  EXPECT_TRUE(status.ok()) << status.message();
  return proposal;
}

// Score of the last block that screening lets in for its score alone.
float screen_cut(const RouteCase& c, const support::ScoreTable& scores, int64_t list) {
  const Row& row = c.p.rows.rows[static_cast<size_t>(list % c.p.rows.size())];
  std::vector<float> ranked;
  for (int32_t b = 0; b < row.visible_blocks; ++b) ranked.push_back(scores.score(list, b));
  std::ranges::sort(ranked, std::greater<>());
  const auto wide = std::lround(c.options.relay.wide * floor_count(row, c.options.selection));
  return ranked[std::min(ranked.size(), static_cast<size_t>(wide)) - 1];
}

TEST_P(RelayTest, ProposalsMatchTheReference) {
  const Problem before = earlier_layer(), p(kArgs);
  const RouteCase c(p, options());
  const Ledger ledger = RouteCase(before, options()).route(reference::route, Isa::kScalar, 1);
  LayerReport report, reference_report;
  const Proposal want = propose(c, reference::relay, ledger, Isa::kScalar, 1, reference_report);
  const Proposal got = propose(c, cpu::relay, ledger, isa(), 2, report);
  EXPECT_EQ(got.kind, want.kind);
  EXPECT_EQ(got.cause, want.cause);
  EXPECT_EQ(report.scored_blocks, reference_report.scored_blocks);
  EXPECT_EQ(report.screened_blocks, reference_report.screened_blocks);

  Options cheap = c.options;
  cheap.router.kind = Router::kSub;
  support::ScoreTable scores(c, [](int, int32_t) { return true; });
  reference::Scorer scorer(p.q.view, p.k.view, p.rows, c.summary, cheap.router, p.scale);
  if (c.options.relay.mode == Relay::kScreen) scores.fill(scorer, Isa::kScalar, 1);
  const support::ScoreTolerance tolerance = support::score_tolerance(Router::kSub, isa());
  for (int64_t list = 0; list < p.n_lists(); ++list) {
    std::vector<int32_t> differing;
    std::ranges::set_symmetric_difference(got.candidates[list], want.candidates[list],
                                          std::back_inserter(differing));
    for (const int32_t block : differing) {
      ASSERT_EQ(c.options.relay.mode, Relay::kScreen) << "list " << list << ", block " << block;
      const float cut = screen_cut(c, scores, list);
      EXPECT_NEAR(scores.score(list, block), cut, 2 * tolerance.of(cut))
          << "list " << list << ", block " << block;
    }
  }
}

TEST_P(RelayTest, ThreadsChangeNothing) {
  const Problem before = earlier_layer(), p(kArgs);
  const RouteCase c(p, options());
  const Ledger ledger = RouteCase(before, options()).route(cpu::route, isa(), 2);
  LayerReport report;
  const Proposal one = propose(c, cpu::relay, ledger, isa(), 1, report);
  const Proposal four = propose(c, cpu::relay, ledger, isa(), 4, report);
  EXPECT_EQ(one.kind, four.kind);
  EXPECT_EQ(one.candidates.offsets, four.candidates.offsets);
  EXPECT_EQ(one.candidates.ids, four.candidates.ids);
}

// The whole of relay and route at a second layer: what relaying keeps or re-ranks, the reference would too.
TEST_P(RelayTest, RoutesAfterRelayMatchTheReference) {
  const Problem before = earlier_layer(), p(kArgs);
  const RouteCase c(p, options());
  const Ledger ledger = RouteCase(before, options()).route(reference::route, Isa::kScalar, 1);
  LayerReport report;
  const Proposal proposal = propose(c, reference::relay, ledger, Isa::kScalar, 1, report);
  const Ledger want = c.route(reference::route, Isa::kScalar, 1, c.options, proposal, ledger);
  const Ledger got = c.route(cpu::route, isa(), 2, c.options, proposal, ledger);
  EXPECT_EQ(got.age, want.age);
  int64_t differing = 0;
  for (int64_t list = 0; list < p.n_lists(); ++list) {
    std::vector<int32_t> blocks;
    std::ranges::set_symmetric_difference(got.route[list], want.route[list], std::back_inserter(blocks));
    differing += static_cast<int64_t>(blocks.size());
  }
  // Blocks at the cut may fall to either side; route_test.cc looks at each of them.
  const bool bf16 = isa() == Isa::kAvx512Bf16 || isa() == Isa::kAmxBf16;
  EXPECT_LE(differing, bf16 ? static_cast<int64_t>(want.route.ids.size() / 50) : 1);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RelayTest,
                         ::testing::Combine(support::kEveryIsa,
                                            ::testing::Values(Relay::kFixed, Relay::kStrict, Relay::kMass,
                                                              Relay::kRepair, Relay::kCertify,
                                                              Relay::kScreen)),
                         support::CaseName());

}  // namespace
}  // namespace routerelay
