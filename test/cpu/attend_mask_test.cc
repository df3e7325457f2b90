// SPDX-License-Identifier: Apache-2.0
// Attend under masks on every instruction set, and the reference, against an independent float64 softmax.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/rng.h"
#include "cpu/attend/attend.h"
#include "cpu/attend_peer.h"
#include "support/exec.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::full_routes;
using support::Problem;
using support::ProblemArgs;
using support::TestExec;
using support::with_dtype;

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttendMaskTest : public support::AttendOnIsa {};

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendMaskTest, support::kEveryIsa, support::CaseName());

// A host's chunk: every key of the cache is in sight, the mask alone says what is seen.
ProblemArgs chunk(int64_t queries, int64_t keys, int64_t q_heads, int64_t kv_heads, DType dtype) {
  ProblemArgs args = with_dtype({.q_tokens = queries,
                                 .k_tokens = keys,
                                 .q_heads = q_heads,
                                 .kv_heads = kv_heads,
                                 .sequences = {{0, queries, 0, keys, keys}}},
                                dtype);
  return args;
}

TEST_P(AttendMaskTest, AnyMask) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0})
    for (const double share : {0.02, 0.5, 0.98}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", hidden " << share);
      Problem p(chunk(70, 333, 6, 2, dtype));
      Philox random(4, 0);
      p.hide([&](size_t, int64_t, int64_t) { return random.uniform() < share; });
      expect_exact(p, full_routes());
    }
}

TEST_P(AttendMaskTest, AnyMaskOverRoutesAndCausality) {
  ProblemArgs args = chunk(200, 300, 2, 1, DType::kBF16);
  args.head_dim = 128;
  args.sequences = {{0, 90, 0, 140, 50}, {90, 110, 140, 160, 50}};
  Problem p(args);
  Philox random(5, 0);
  p.hide([&](size_t, int64_t, int64_t) { return random.uniform() < 0.4; });
  expect_exact(p, support::random_routes(p.rows, 2, 0.5, 9));
}

TEST_P(AttendMaskTest, SlidingWindowVisitsItsBlocksOnly) {
  Problem p(chunk(256, 1024, 4, 4, DType::kF16));
  p.hide([](size_t, int64_t i, int64_t j) { return j > 768 + i || j <= 768 + i - 100; });
  expect_exact(p, full_routes());
  for (int64_t r = 0; r < p.rows.size(); ++r) EXPECT_LE(masked_.shown[r].size(), 4u);
}

// Four prompts share one cache, their cells in turns, as a server with several slots leaves them.
TEST_P(AttendMaskTest, SlotsOfOneCache) {
  Problem p(chunk(96, 512, 8, 2, DType::kF16));
  p.hide([](size_t, int64_t i, int64_t j) { return j % 4 != i % 4 || j / 4 > 100 + i / 4; });
  expect_exact(p, full_routes());
}

TEST_P(AttendMaskTest, QueryWithoutKeysGivesZeroAndMinusInfinity) {
  Problem p(chunk(130, 200, 2, 1, DType::kBF16));
  p.hide([](size_t, int64_t i, int64_t) { return i == 3 || (i >= 64 && i < 128); });
  expect_exact(p, full_routes());
  for (const int64_t i : {3, 64, 127}) {
    EXPECT_EQ(p.out.get(i, 1, 0), 0.0f);
    EXPECT_EQ(p.lse_log2[static_cast<size_t>(130 + i)], -kInf);
  }
}

TEST_P(AttendMaskTest, TheCausalMaskChangesNoBit) {
  for (const int block : {64, 128}) {
    ProblemArgs plain = chunk(200, 500, 6, 2, DType::kBF16), masked = plain;
    plain.sequences = {{0, 200, 0, 500, 300}};
    plain.q_block = plain.k_block = masked.q_block = masked.k_block = block;
    Problem a(plain), b(masked);
    b.hide([](size_t, int64_t i, int64_t j) { return j > 300 + i; });
    TestExec exec(2, GetParam());
    RR_ASSERT_OK(cpu::attend(a.attend_args(full_routes()), exec.exec));
    RR_ASSERT_OK(attend(b, full_routes()));
    EXPECT_TRUE(a.out.same_bits(b.out)) << block;
    EXPECT_EQ(a.lse_log2, b.lse_log2) << block;
  }
}

TEST_P(AttendMaskTest, HiddenPoisonDoesNotSpread) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0}) {
    Problem clean(chunk(80, 300, 4, 2, dtype)), dirty(chunk(80, 300, 4, 2, dtype));
    const auto hidden = [](size_t, int64_t i, int64_t j) { return j % 7 == 3 || (i + j) % 5 == 0; };
    clean.hide(hidden);
    dirty.hide(hidden);
    for (int64_t j = 3; j < 300; j += 7) {
      dirty.v.set(j, 1, 5, kInf);
      dirty.k.set(j, 0, 9, std::numeric_limits<float>::quiet_NaN());
    }
    RR_ASSERT_OK(attend(clean, full_routes()));
    RR_ASSERT_OK(attend(dirty, full_routes()));
    EXPECT_TRUE(clean.out.same_bits(dirty.out)) << dtype_name(dtype);
    EXPECT_EQ(clean.lse_log2, dirty.lse_log2) << dtype_name(dtype);
  }
}

TEST_P(AttendMaskTest, SameBitsForAnyThreads) {
  Problem one(chunk(300, 700, 8, 2, DType::kF16)), many(chunk(300, 700, 8, 2, DType::kF16));
  for (Problem* p : {&one, &many})
    p->hide([](size_t, int64_t i, int64_t j) { return (i * 31 + j * 17) % 11 < 4; });
  RR_ASSERT_OK(attend(one, full_routes(), 1));
  RR_ASSERT_OK(attend(many, full_routes(), 7));
  EXPECT_TRUE(one.out.same_bits(many.out));
}

}  // namespace
}  // namespace routerelay
