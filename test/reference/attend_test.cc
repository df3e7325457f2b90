// SPDX-License-Identifier: Apache-2.0
// The reference's attend against an independent float64 softmax, over every shape, layout and mask that callers have.
#include <gtest/gtest.h>

#include <limits>

#include "reference/reference.h"
#include "support/exec.h"
#include "support/matches.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::exact_attention;
using support::expect_matches;
using support::full_routes;
using support::Layout;
using support::listed_full_routes;
using support::make_routes;
using support::Problem;
using support::ProblemArgs;
using support::Products;
using support::random_routes;
using support::tolerance_of;
using support::with_dtype;

void attend(Problem& p, const Routes& routes, int threads = 2) {
  support::TestExec t(threads);
  RR_ASSERT_OK(reference::attend(p.attend_args(routes), t.exec));
}

void check(const ProblemArgs& args, double share) {
  SCOPED_TRACE(::testing::Message() << "q " << args.q_tokens << ", k " << args.k_tokens << ", heads "
                                    << args.q_heads << "/" << args.kv_heads << " x " << args.head_dim << ", "
                                    << dtype_name(args.kv_dtype) << ", blocks " << args.k_block << ", share "
                                    << share);
  Problem p(args);
  const Routes routes = share == 1 ? full_routes() : random_routes(p.rows, args.q_heads, share, args.seed);
  attend(p, routes);
  expect_matches(p, exact_attention(p, routes), tolerance_of(args.out_dtype, Products::kF64));
}

TEST(Attend, TokenCounts) {
  for (int64_t tokens : {0, 1, 63, 64, 65, 127, 1000})
    for (double share : {1.0, 0.5}) check({.q_tokens = tokens, .k_tokens = tokens}, share);
}

TEST(Attend, HeadsAndGroups) {
  for (int64_t heads : {1, 3, 9, 14, 32}) check({.q_tokens = 127, .k_tokens = 127, .q_heads = heads}, 0.5);
  for (int64_t group = 1; group <= 8; ++group)
    check({.q_tokens = 65, .k_tokens = 130, .q_heads = 2 * group, .kv_heads = 2}, 0.5);
}

TEST(Attend, HeadDims) {
  for (int64_t head_dim : {64, 80, 96, 128, 256})
    check({.q_tokens = 65, .k_tokens = 130, .q_heads = 2, .kv_heads = 1, .head_dim = head_dim}, 0.5);
}

TEST(Attend, Offsets) {
  for (int64_t offset : {1, 63, 64, 65, 127, 128, 1000})
    for (double share : {1.0, 0.3}) check({.q_tokens = 65, .k_tokens = 65 + offset}, share);
}

TEST(Attend, BlocksOf128) {
  for (int64_t tokens : {1, 127, 128, 129, 500})
    check({.q_tokens = tokens, .k_tokens = tokens + 70, .q_block = 128, .k_block = 128}, 0.5);
  check({.q_tokens = 300, .k_tokens = 300, .q_block = 64, .k_block = 128}, 0.5);
  check({.q_tokens = 300, .k_tokens = 300, .q_block = 128, .k_block = 64}, 0.5);
}

TEST(Attend, DtypesAndLayouts) {
  for (Layout layout : {Layout::kTokenMajor, Layout::kHeadMajor, Layout::kPadded})
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0})
      check(
          with_dtype({.q_tokens = 70, .k_tokens = 129, .q_heads = 4, .kv_heads = 2, .layout = layout}, dtype),
          0.5);
  check({.q_tokens = 70, .k_tokens = 129, .kv_dtype = DType::kF16, .out_dtype = DType::kBF16}, 0.5);
}

TEST(Attend, RaggedBatchLeavesOtherQueriesAlone) {
  ProblemArgs args{.q_tokens = 400, .k_tokens = 500, .q_heads = 4, .kv_heads = 2};
  args.sequences = {
      {3, 65, 0, 65, 0},                                // a prompt
      {68, 0, 65, 64, 64},                              // no queries
      {80, 1, 65, 130, 129},                            // one token at the end of its cache
      {100, 130, 195, 200, 70}, {230, 100, 395, 0, 0},  // no keys
      {330, 64, 395, 105, 300}                          // every key before every query
  };
  check(args, 1);
  check(args, 0.4);
}

TEST(Attend, AQueryWithoutAKeyGivesZeroAndMinusInfinity) {
  Problem p({.q_tokens = 128, .k_tokens = 128, .q_heads = 2});
  const Routes routes =
      make_routes(p.rows, 2, [](int64_t h, int64_t r, int32_t) { return h == 0 && r == 1; });
  attend(p, routes);
  expect_matches(p, exact_attention(p, routes), tolerance_of(DType::kF32, Products::kF64));
  EXPECT_EQ(p.lse_log2[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(p.out.get(127, 1, 5), 0);
}

TEST(Attend, AListOfEveryBlockIsTheFullRoute) {
  Problem p({.q_tokens = 300, .k_tokens = 400, .q_heads = 2}),
      q({.q_tokens = 300, .k_tokens = 400, .q_heads = 2});
  attend(p, full_routes());
  attend(q, listed_full_routes(q.rows, 2));
  EXPECT_TRUE(p.out.same_bits(q.out));
  EXPECT_EQ(p.lse_log2, q.lse_log2);
}

TEST(Attend, TheSameBitsForAnyThreadsAndBatchMates) {
  const ProblemArgs args{.q_tokens = 200, .k_tokens = 300, .q_heads = 4, .kv_heads = 2};
  Problem one(args), many(args);
  attend(one, full_routes(), 1);
  attend(many, full_routes(), 5);
  EXPECT_TRUE(one.out.same_bits(many.out));
  EXPECT_EQ(one.lse_log2, many.lse_log2);
}

TEST(Attend, NaNStaysWhereItMayBeSeen) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Problem clean({.q_tokens = 200, .k_tokens = 200, .q_heads = 2}),
      p({.q_tokens = 200, .k_tokens = 200, .q_heads = 2});
  p.q.set(5, 0, 3, nan);    // query 5 of head 0 alone
  p.k.set(150, 0, 0, nan);  // queries from 150 on
  p.v.set(160, 0, 7, nan);  // channel 7 from 160 on
  attend(clean, full_routes());
  attend(p, full_routes());
  for (int64_t t = 0; t < 200; ++t)
    for (int64_t h = 0; h < 2; ++h) {
      const bool spoilt = t >= 150 || (t == 5 && h == 0);
      EXPECT_EQ(std::isnan(p.out.get(t, h, 0)), spoilt) << t << " " << h;
      if (!spoilt) {
        EXPECT_EQ(p.out.get(t, h, 0), clean.out.get(t, h, 0)) << t << " " << h;
      }
    }
}

TEST(Attend, NaNInBlocksOutsideTheRouteIsNeverTouched) {
  Problem clean({.q_tokens = 256, .k_tokens = 256}), p({.q_tokens = 256, .k_tokens = 256});
  for (int64_t t = 64; t < 128; ++t)
    for (int64_t c = 0; c < 64; ++c) {
      p.k.set(t, 0, c, std::numeric_limits<float>::quiet_NaN());
      p.v.set(t, 0, c, std::numeric_limits<float>::infinity());
    }
  const Routes routes = make_routes(p.rows, 1, [](int64_t, int64_t, int32_t block) { return block != 1; });
  attend(clean, routes);
  attend(p, routes);
  EXPECT_TRUE(p.out.same_bits(clean.out));
}

TEST(Attend, HugeLogitsDoNotOverflow) {
  Problem p({.q_tokens = 65, .k_tokens = 65});
  p.q.fill_normal(1, 0, 300);
  p.k.fill_normal(1, 1, 300);
  attend(p, full_routes());
  expect_matches(p, exact_attention(p, full_routes()), tolerance_of(DType::kF32, Products::kF64));
}

TEST(Attend, LseIsOptional) {
  Problem p({.q_tokens = 65, .k_tokens = 65});
  const Routes routes = full_routes();
  support::TestExec t;
  AttendArgs args{p.q.view, p.k.view, p.v.view, p.rows, routes, p.scale, p.out.mutable_view, nullptr};
  RR_ASSERT_OK(reference::attend(args, t.exec));
  EXPECT_FALSE(std::isnan(p.out.get(64, 0, 0)));
}

}  // namespace
}  // namespace routerelay
