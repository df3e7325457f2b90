// SPDX-License-Identifier: Apache-2.0
// Result: a value, or the reason why there is none.
#include "routerelay/status.hpp"

#include <gtest/gtest.h>

#include "routerelay/options.hpp"

namespace routerelay {
namespace {

TEST(Result, HoldsAValueOrAReason) {
  Result<int> five = 5;
  EXPECT_TRUE(five.ok() && five.status().ok());
  EXPECT_EQ(five.value(), 5);
  const Result<int> none = Status(Code::kUnsupported, "no fives here");
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "no fives here");
}

#ifndef NDEBUG

TEST(ResultDeathTest, AskingAnErrorForItsValueIsFoundWhereItIsDone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)Options::from_preset("blanced").value(), "status.hpp:[0-9]+: .*value\\(\\) of an error");
  const Result<std::string> none = Status(Code::kUnsupported, "no words here");
  EXPECT_DEATH((void)none.value(), "value\\(\\) of an error");
  EXPECT_DEATH((void)none->size(), "value\\(\\) of an error");
}

#endif

}  // namespace
}  // namespace routerelay
