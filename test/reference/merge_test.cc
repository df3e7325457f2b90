// SPDX-License-Identifier: Apache-2.0
// Partial results over disjoint blocks, merged by their LSE, are the result over all of them.
#include "core/merge.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "reference/reference.h"
#include "support/exec.h"
#include "support/problem.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// GQ-3: blocks 0-3 and 4-7 of 128 keys in two calls, 32/8 heads, against one call over all of them.
TEST(Merge, TwoCallsOverHalvesEqualOneOverAll) {
  const support::ProblemArgs args{.q_tokens = 40,
                                  .k_tokens = 1024,
                                  .q_heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .q_block = 128,
                                  .k_block = 128};
  support::Problem whole(args), left(args), right(args);
  support::TestExec t;
  const auto run = [&](support::Problem& p, int32_t begin, int32_t end) {
    const Routes routes = support::make_routes(
        p.rows, 32, [&](int64_t, int64_t, int32_t block) { return block >= begin && block < end; });
    RR_ASSERT_OK(reference::attend(p.attend_args(routes), t.exec));
  };
  run(whole, 0, 8);
  run(left, 0, 4);
  run(right, 4, 8);
  for (int64_t token = 0; token < 40; ++token)
    for (int64_t h = 0; h < 32; ++h) {
      const auto at = static_cast<size_t>(h * 40 + token);
      const auto row = [&](const support::Problem& p) {
        return PartialAttention{reinterpret_cast<const float*>(p.out.view.at(token, h)), p.lse_log2[at]};
      };
      const std::array<PartialAttention, 2> parts = {row(left), row(right)};
      std::array<float, 128> out{};
      ASSERT_NEAR(merge_partials(parts, 128, out.data()), whole.lse_log2[at], 4e-6);
      for (int64_t c = 0; c < 128; ++c)
        ASSERT_NEAR(out[static_cast<size_t>(c)], whole.out.get(token, h, c), 1e-6);
    }
}

TEST(Merge, LseIsInBase2) {
  // Two equal keys, one in each part: each has weight 1/2 and the union's LSE is one bit more.
  const float a = 1, b = 3;
  float out = 0;
  const std::array<PartialAttention, 2> parts = {PartialAttention{&a, 5}, PartialAttention{&b, 5}};
  EXPECT_EQ(merge_partials(parts, 1, &out), 6);
  EXPECT_EQ(out, 2);
}

TEST(Merge, PartsWithoutKeysDoNotCount) {
  const float empty = 0, a = 7;
  float out = -1;
  const std::array<PartialAttention, 3> parts = {PartialAttention{&empty, kNone}, PartialAttention{&a, -3},
                                                 PartialAttention{&empty, kNone}};
  EXPECT_EQ(merge_partials(parts, 1, &out), -3);
  EXPECT_EQ(out, 7);
  EXPECT_EQ(merge_partials(std::span(parts).first(1), 1, &out), kNone);
  EXPECT_EQ(out, 0);
  EXPECT_EQ(merge_partials({}, 1, &out), kNone);
}

TEST(Merge, FarApartLsesDoNotOverflow) {
  const float a = 1, b = 2;
  float out = 0;
  const std::array<PartialAttention, 2> parts = {PartialAttention{&a, -3000}, PartialAttention{&b, 3000}};
  EXPECT_EQ(merge_partials(parts, 1, &out), 3000);
  EXPECT_EQ(out, 2);
}

}  // namespace
}  // namespace routerelay
