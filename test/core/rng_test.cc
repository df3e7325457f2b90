// SPDX-License-Identifier: Apache-2.0
// Philox: published answers, independence of streams, and the moments of what it draws.
#include "core/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace routerelay {
namespace {

// The first from Random123's known answers (philox4x32 10, counter and key 0); the second by a Python version of
// the rounds that gives all three published vectors.
TEST(Philox, KnownAnswers) {
  Philox zero(0, 0);
  for (uint32_t want : {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}) EXPECT_EQ(zero.next(), want);
  Philox other(0x0123456789abcdef, 0xfedcba9876543210);
  for (uint32_t want : {0xaef2adf7u, 0xf69b5950u, 0x3ceb44f4u, 0x89b6573au, 0xec2ab39fu, 0x4671fd85u,
                        0x74decae0u, 0x4b77ec76u})
    EXPECT_EQ(other.next(), want);
}

TEST(Philox, SameSeedAndStreamRepeatOthersDiffer) {
  Philox a(7, 1), b(7, 1), c(7, 2), d(8, 1);
  int same_c = 0, same_d = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t x = a.next();
    EXPECT_EQ(x, b.next());
    same_c += x == c.next() ? 1 : 0;
    same_d += x == d.next() ? 1 : 0;
  }
  EXPECT_LE(same_c, 1);
  EXPECT_LE(same_d, 1);
}

TEST(Philox, UniformIsOpenAndEven) {
  Philox random(1, 0);
  constexpr int kDraws = 100000, kBins = 10;
  std::array<int, kBins> bins{};
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.uniform();
    ASSERT_GT(x, 0);
    ASSERT_LT(x, 1);
    ++bins[static_cast<size_t>(x * kBins)];
  }
  double chi_squared = 0;
  for (int n : bins)
    chi_squared += (n - kDraws / kBins) * (n - kDraws / kBins) / static_cast<double>(kDraws / kBins);
  EXPECT_LT(chi_squared, 27.9);  // 9 degrees of freedom, one in a thousand
}

TEST(Philox, NormalHasItsMoments) {
  Philox random(2, 0);
  constexpr int kDraws = 200000;
  double mean = 0, square = 0, fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.normal();
    mean += x / kDraws;
    square += x * x / kDraws;
    fourth += x * x * x * x / kDraws;
  }
  // Four standard errors each: 1, sqrt(2) and sqrt(96) over sqrt(kDraws).
  EXPECT_NEAR(mean, 0, 0.009);
  EXPECT_NEAR(square, 1, 0.013);
  EXPECT_NEAR(fourth, 3, 0.09);
}

TEST(Philox, BelowStaysBelowAndReachesAll) {
  Philox random(3, 0);
  EXPECT_EQ(random.below(1), 0u);
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t x = random.below(7);
    ASSERT_LT(x, 7u);
    seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 7u);
}

}  // namespace
}  // namespace routerelay
