// SPDX-License-Identifier: Apache-2.0
// Options by name: every key reaches its field, and what is no value of it is refused in words.
#include <gtest/gtest.h>

#include "routerelay/options.hpp"

namespace routerelay {
namespace {

TEST(OptionsSet, ReachesTheField) {
  Options o = Options::from_preset("balanced").value();
  const std::pair<const char*, const char*> given[] = {
      {"router", "ball"},
      {"router.samples", "7"},
      {"router.sub_q", "16"},
      {"router.sub_k", "4"},
      {"router.stride", "16"},
      {"selection", "threshold"},
      {"selection.k", "9"},
      {"selection.least", "11"},
      {"selection.floor", "0.2"},
      {"selection.p", "0.7"},
      {"selection.cap", "0.8"},
      {"selection.threshold", "0.3"},
      {"selection.rescue_threshold", "0.4"},
      {"relay", "repair"},
      {"relay.horizon", "3"},
      {"relay.gamma", "0.5"},
      {"relay.delta", "0.25"},
      {"relay.near_blocks", "12"},
      {"relay.probes", "5"},
      {"relay.max_swaps", "6"},
      {"relay.probe_forces", "1"},
      {"relay.wide", "3"},
      {"relay.near", "1.5"},
      {"relay.anchor_every", "4"},
      {"relay.auto_off", "0"},
      {"relay.seed", "18446744073709551615"},
      {"heads", "group"},
      {"q_block", "128"},
      {"k_block", "128"},
      {"sink_blocks", "2"},
      {"local_blocks", "3"},
      {"force_diagonal", "0"},
      {"dense_layers", "1"},
      {"never_relay", "5,9"},
      {"dense_below", "1024"},
      {"audit_every", "8"},
      {"dense", "1"},
  };
  for (const auto& [key, value] : given) EXPECT_TRUE(o.set(key, value).ok()) << key;
  EXPECT_EQ(o.router.kind, Router::kBall);
  EXPECT_EQ(std::tie(o.router.samples, o.router.sub_q, o.router.sub_k, o.router.stride),
            std::tuple(7, 16, 4, 16));
  EXPECT_EQ(o.selection.kind, Selection::kThreshold);
  EXPECT_EQ(std::tie(o.selection.k, o.selection.floor, o.selection.p, o.selection.cap),
            std::tuple(9, 0.2, 0.7, 0.8));
  EXPECT_EQ(std::tie(o.selection.threshold, o.selection.rescue_threshold), std::tuple(0.3, 0.4));
  EXPECT_EQ(o.selection.least, 11);
  EXPECT_EQ(o.relay.mode, Relay::kRepair);
  EXPECT_EQ(std::tie(o.relay.horizon, o.relay.gamma, o.relay.delta), std::tuple(3, 0.5, 0.25));
  EXPECT_EQ(std::tie(o.relay.near_blocks, o.relay.probes, o.relay.max_swaps), std::tuple(12, 5, 6));
  EXPECT_EQ(std::tie(o.relay.probe_forces, o.relay.wide, o.relay.near), std::tuple(true, 3.0, 1.5));
  EXPECT_EQ(std::tie(o.relay.anchor_every, o.relay.auto_off, o.relay.seed), std::tuple(4, false, UINT64_MAX));
  EXPECT_EQ(o.heads, Heads::kGroup);
  EXPECT_EQ(std::tie(o.q_block, o.k_block, o.sink_blocks, o.local_blocks), std::tuple(128, 128, 2, 3));
  EXPECT_EQ(std::tie(o.force_diagonal, o.dense_layers, o.dense), std::tuple(false, 1, true));
  EXPECT_EQ(o.never_relay, (std::vector<int>{5, 9}));
  EXPECT_EQ(std::tie(o.dense_below, o.audit_every), std::tuple(int64_t{1024}, 8));
  EXPECT_TRUE(o.check().ok()) << o.check().message();
}

TEST(OptionsSet, ThePresetSaysWhatWasChanged) {
  Options o = Options::from_preset("fast").value();
  EXPECT_TRUE(o.set("relay", "off").ok());
  EXPECT_TRUE(o.set("selection.p", "0.95").ok());
  EXPECT_EQ(o.preset, "fast relay=off selection.p=0.95");
}

TEST(OptionsSet, RefusesWhatIsNoValue) {
  Options o = Options::from_preset("balanced").value();
  EXPECT_EQ(o.set("relay", "on").message(),
            "options: relay is 'on'; legal: off, fixed, strict, mass, repair, certify, screen");
  EXPECT_EQ(o.set("selection.p", "").message(), "options: selection.p is ''; legal: a number");
  EXPECT_EQ(o.set("relay.horizon", "99999999999").message(),
            "options: relay.horizon is '99999999999'; legal: a whole number that fits");
  EXPECT_EQ(o.set("relay.auto_off", "yes").message(), "options: relay.auto_off is 'yes'; legal: 0, 1");
  EXPECT_EQ(o.set("never_relay", "5,x").message(),
            "options: never_relay is 'x'; legal: a whole number that fits");
  EXPECT_EQ(o.preset, "balanced");
}

TEST(OptionsSet, RefusesRoutingOfADensePreset) {
  Options o = Options::from_preset("exact").value();
  EXPECT_EQ(o.set("router", "sub").message(),
            "options: router would do nothing: preset exact attends to every block; start from careful, "
            "balanced or fast, or set dense to 0 first");
  EXPECT_TRUE(o.set("dense", "0").ok());
  EXPECT_TRUE(o.set("router", "sub").ok());
}

TEST(OptionsSet, TakesTheFieldsOwnNames) {
  Options o = Options::from_preset("balanced").value();
  EXPECT_TRUE(o.set("router.kind", "box").ok());
  EXPECT_TRUE(o.set("selection.kind", "top_k").ok());
  EXPECT_TRUE(o.set("relay.mode", "off").ok());
  EXPECT_EQ(o.router.kind, Router::kBox);
  EXPECT_EQ(o.selection.kind, Selection::kTopK);
  EXPECT_EQ(o.relay.mode, Relay::kOff);
  EXPECT_EQ(o.set("relay.kind", "off").code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace routerelay
