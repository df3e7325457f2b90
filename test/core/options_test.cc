// SPDX-License-Identifier: Apache-2.0
// Presets hold design.md's values; illegal options are refused with field, value and what is legal.
#include "routerelay/options.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/summary.h"
#include "support/status.h"

namespace routerelay {
namespace {

Options preset(std::string_view name) {
  Result<Options> options = Options::from_preset(name);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return options.ok() ? options.value() : Options{};
}

TEST(Options, PresetsHoldTheirValues) {
  EXPECT_TRUE(preset("exact").dense);
  const Options careful = preset("careful"), balanced = preset("balanced"), fast = preset("fast");
  EXPECT_EQ(careful.router.samples, 8);
  EXPECT_EQ(careful.selection.p, 0.95);
  EXPECT_EQ(careful.selection.cap, 0.6);
  EXPECT_EQ(careful.relay.mode, Relay::kOff);
  EXPECT_EQ(balanced.router.samples, 8);
  EXPECT_EQ(balanced.router.candidate_samples, 16);
  EXPECT_EQ(balanced.selection.p, 0.95);
  EXPECT_EQ(balanced.selection.cap, 0.6);
  EXPECT_EQ(balanced.relay.mode, Relay::kScreen);
  EXPECT_EQ(balanced.relay.wide, 6);
  EXPECT_EQ(balanced.relay.near, 1);
  EXPECT_EQ(fast.router.samples, 4);
  EXPECT_EQ(fast.router.candidate_samples, 16);
  EXPECT_EQ(fast.selection.p, 0.9);
  EXPECT_EQ(fast.relay.wide, 2);
  EXPECT_EQ(fast.selection.floor, 0.03);
  EXPECT_EQ(fast.selection.cap, 0.25);
  for (const Options& o : {careful, balanced, fast}) {
    EXPECT_FALSE(o.dense);
    EXPECT_EQ(o.router.kind, Router::kSampled);
    EXPECT_EQ(o.selection.kind, Selection::kTopP);
    EXPECT_EQ(o.heads, Heads::kSame);
    EXPECT_EQ(o.q_block, 64);
    EXPECT_EQ(o.k_block, 64);
    EXPECT_EQ(o.dense_layers, 2);
    EXPECT_EQ(o.dense_below, 2048);
    RR_ASSERT_OK(o.check());
  }
  support::expect_error(Options::from_preset("best").status(), Code::kInvalidArgument,
                        "options: preset is 'best'; legal: exact, careful, balanced, fast");
}

TEST(Options, NamesComeBack) {
  for (Router r :
       {Router::kCentroid, Router::kSub, Router::kSampled, Router::kAntidiag, Router::kBox, Router::kBall})
    EXPECT_EQ(router_from(name_of(r)).value(), r);
  for (Selection s : {Selection::kTopK, Selection::kThreshold, Selection::kTopP})
    EXPECT_EQ(selection_from(name_of(s)).value(), s);
  for (Relay r : {Relay::kOff, Relay::kFixed, Relay::kStrict, Relay::kMass, Relay::kRepair, Relay::kCertify,
                  Relay::kScreen})
    EXPECT_EQ(relay_from(name_of(r)).value(), r);
  for (Heads h : {Heads::kSame, Heads::kGroup}) EXPECT_EQ(heads_from(name_of(h)).value(), h);
  support::expect_error(router_from("quest").status(), Code::kInvalidArgument,
                        "options: router is 'quest'; legal: centroid, sub, sampled, antidiag, box, ball");
}

void refuses(const std::function<void(Options&)>& spoil, const std::string& message) {
  Options options;
  spoil(options);
  support::expect_error(options.check(), Code::kInvalidArgument, "options: " + message);
}

TEST(Options, CheckNamesFieldValueAndWhatIsLegal) {
  refuses([](Options& o) { o.q_block = 32; }, "q_block is 32; legal: 64, 128");
  refuses([](Options& o) { o.k_block = 0; }, "k_block is 0; legal: 64, 128");
  refuses([](Options& o) { o.router.samples = 0; }, "router.samples is 0; legal: 1 to 64");
  refuses([](Options& o) { o.router.candidate_samples = 65; },
          "router.candidate_samples is 65; legal: 0 to 64");
  refuses([](Options& o) { o.router.sub_k = 24; }, "router.sub_k is 24; must divide the block of 64");
  refuses([](Options& o) { o.router.stride = 64; }, "router.stride is 64; legal: 1 to 32");
  refuses([](Options& o) { o.router.kind = static_cast<Router>(9); },
          "router.kind is number 9; legal: centroid, sub, sampled, antidiag, box, ball");
  refuses([](Options& o) { o.selection.p = 1.5; }, "selection.p is 1.5; legal: 0 to 1");
  refuses([](Options& o) { o.selection.p = std::numeric_limits<double>::quiet_NaN(); },
          "selection.p is nan; legal: 0 to 1");
  refuses([](Options& o) { o.relay.horizon = 0; }, "relay.horizon is 0; legal: 1 to 255");
  refuses([](Options& o) { o.relay.mode = Relay::kCertify; },
          "relay.mode is certify with selection.kind top_p; its cut holds only for top_k");
  refuses([](Options& o) { o.audit_every = -1; }, "audit_every is -1; legal: 0 to 1073741824");
}

TEST(SummaryNeeds, FollowTheRouterAndTheScreen) {
  Options o;
  EXPECT_FALSE(SummaryNeeds::of(preset("exact")).any());
  o.dense = false;
  o.relay.mode = Relay::kOff;
  EXPECT_FALSE(SummaryNeeds::of(o).any());  // sampled reads the keys themselves
  o.relay.mode = Relay::kScreen;
  EXPECT_TRUE(SummaryNeeds::of(o).sub_means);
  o.router.kind = Router::kBall;
  EXPECT_TRUE(SummaryNeeds::of(o).mean && SummaryNeeds::of(o).radius);
}

// The bar: at most 8 % of 16-bit K and V, for what the presets keep.
TEST(Summary, OfAPresetStaysUnderItsShareOfTheCache) {
  Summary s;
  const int64_t tokens = 32768, kv_heads = 8, head_dim = 128;
  s.resize(SummaryNeeds::of(preset("balanced")), tokens / 64, kv_heads, head_dim, 64);
  EXPECT_GT(s.bytes(), 0);
  EXPECT_LE(static_cast<double>(s.bytes()), 0.08 * 2 * 2 * tokens * kv_heads * head_dim);
}

}  // namespace
}  // namespace routerelay
