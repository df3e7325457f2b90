// SPDX-License-Identifier: Apache-2.0
// RR_ASSERT: in a build that checks, a broken invariant ends the program with its place; in any other it costs nothing.
#include "core/assert.h"

#include <gtest/gtest.h>

#include "core/routes.h"

namespace routerelay {
namespace {

TEST(Assert, WhatHoldsIsSilent) {
  RR_ASSERT(1 + 1 == 2);
  SUCCEED();
}

#if RR_ASSERTIONS

TEST(AssertDeathTest, SaysWhatBrokeWhere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RR_ASSERT(1 + 1 == 3),
               "assert_test.cc:[0-9]+: .*broken invariant, please report: 1 \\+ 1 == 3");
  BlockLists lists{.offsets = {0, 0}, .ids = {}};
  EXPECT_DEATH(lists[1], "routes.h:[0-9]+: .*i < size\\(\\)");
}

#else

TEST(Assert, IsNotEvaluatedWhereItIsOff) {
  int calls = 0;
  const auto called = [&] { return ++calls < 0; };
  RR_ASSERT(called());
  EXPECT_EQ(calls, 0);
}

#endif

}  // namespace
}  // namespace routerelay
