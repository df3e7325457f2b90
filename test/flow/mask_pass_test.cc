// SPDX-License-Identifier: Apache-2.0
// Layers under masks in a Pass, on every back end: exact whatever the preset, counted by what is shown.
#include <gtest/gtest.h>

#include "support/backends.h"
#include "support/exact.h"
#include "support/matches.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Problem;
using support::ProblemArgs;

class MaskPassOn : public testing::TestWithParam<support::Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, MaskPassOn, testing::ValuesIn(support::backends()), support::backend_name);

// Two streams of 128 queries whose cells of one cache take turns; the second one slides a window of 90.
Problem slots() {
  ProblemArgs args{.q_tokens = 256, .k_tokens = 1200, .q_heads = 4, .kv_heads = 2};
  args.sequences = {{0, 128, 0, 700, 700}, {128, 128, 700, 500, 500}};
  Problem p(args);
  p.hide([](size_t s, int64_t i, int64_t j) {
    return s == 0 ? j % 2 == 1 || j / 2 > 200 + i : j > 300 + i || j <= 210 + i;
  });
  return p;
}

TEST_P(MaskPassOn, IsExactUnderEveryPreset) {
  for (const char* preset : {"exact", "balanced"}) {
    Problem p = slots();
    Options options = Options::from_preset(preset).value();
    options.dense_below = 0;
    Engine engine = Engine::create(GetParam().engine_options()).value();
    Pass pass = Pass::begin(engine, options).value();
    RR_ASSERT_OK(pass.layer(p.layer_args(3)));
    expect_matches(p, support::exact_attention(p, support::full_routes()), GetParam().tolerance(p));

    const LayerReport& report = pass.report().layers.back();
    EXPECT_TRUE(report.dense);
    EXPECT_EQ(report.visited_blocks, report.visible_blocks);
    // 7 to 11 blocks of the first stream hold a key that two rows see, 3 of the second.
    EXPECT_LE(report.visible_blocks, 4 * (2 * 11 + 2 * 4));
    EXPECT_TRUE(pass.row_offsets().empty());
  }
}

TEST_P(MaskPassOn, RefusesOtherValuesBeforeItWrites) {
  Problem p = slots();
  p.mask_values[1][4] = 0x3c00;
  Engine engine = Engine::create(GetParam().engine_options()).value();
  Pass pass = Pass::begin(engine, Options::from_preset("exact").value()).value();
  support::expect_error(pass.layer(p.layer_args(3)), Code::kUnsupported,
                        "mask: query 128 has the f16 value 0x3c00 at key 4; legal: 0 and -inf");
  for (int64_t t = 0; t < 256; ++t) ASSERT_TRUE(std::isnan(p.out.get(t, 0, 0))) << t;
}

// A layer with a sliding window between two that relay to each other.
TEST_P(MaskPassOn, LeavesTheLedgerAlone) {
  Options options = Options::from_preset("balanced").value();
  options.dense_below = 0;
  options.relay.auto_off = false;
  ProblemArgs args{.q_tokens = 512, .k_tokens = 512, .q_heads = 2, .kv_heads = 1};
  Problem plain(args), masked(args);
  masked.hide([](size_t, int64_t i, int64_t j) { return j + 64 < i; });
  Engine engine = Engine::create(GetParam().engine_options()).value();
  const auto relayed_picks = [&](bool with_masked_layer) {
    Pass pass = Pass::begin(engine, options).value();
    EXPECT_TRUE(pass.layer(plain.layer_args(3)).ok());
    if (with_masked_layer) {
      EXPECT_TRUE(pass.layer(masked.layer_args(4)).ok());
    }
    EXPECT_TRUE(pass.layer(plain.layer_args(5)).ok());
    EXPECT_TRUE(pass.report().layers.back().relayed);
    return std::vector<int32_t>(pass.picked().begin(), pass.picked().end());
  };
  EXPECT_EQ(relayed_picks(true), relayed_picks(false));
}

}  // namespace
}  // namespace routerelay
