// SPDX-License-Identifier: Apache-2.0
// BlockLists and the builder that makes them from lists set in any order by several threads.
#include "core/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/rng.h"
#include "support/exec.h"
#include "support/status.h"

namespace routerelay {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

TEST(BlockLists, EmptyHasNoLists) {
  BlockLists lists;
  EXPECT_EQ(lists.size(), 0);
  lists.offsets = {0};
  EXPECT_EQ(lists.size(), 0);
}

TEST(ListBuilder, LaysListsOutInOrderOfIndex) {
  ListBuilder builder(4, 2);
  const std::vector<int32_t> a = {5, 9}, b = {1}, c = {0, 2, 4};
  builder.set(3, 0, a);
  builder.set(0, 1, b);
  builder.set(2, 0, c);  // list 1 is never set
  const BlockLists lists = builder.finish();
  ASSERT_EQ(lists.size(), 4);
  EXPECT_THAT(lists[0], ElementsAre(1));
  EXPECT_THAT(lists[1], IsEmpty());
  EXPECT_THAT(lists[2], ElementsAre(0, 2, 4));
  EXPECT_THAT(lists[3], ElementsAre(5, 9));
  EXPECT_THAT(lists.offsets, ElementsAre(0, 1, 1, 4, 6));
}

TEST(ListBuilder, GivesTheSameListsForAnyThreads) {
  constexpr int64_t kLists = 500;
  std::vector<std::vector<int32_t>> want(kLists);
  Philox random(5, 0);
  for (auto& list : want)
    for (int32_t id = 0; id < 20; ++id)
      if (random.below(3) == 0) list.push_back(id);
  for (int threads : {1, 2, 5}) {
    support::TestExec t(threads);
    ListBuilder builder(kLists, threads);
    RR_ASSERT_OK(t.exec.for_each(
        kLists, [&](int thread, int64_t i) { builder.set(i, thread, want[static_cast<size_t>(i)]); }));
    const BlockLists lists = builder.finish();
    ASSERT_EQ(lists.size(), kLists);
    for (int64_t i = 0; i < kLists; ++i)
      EXPECT_THAT(lists[i], ElementsAreArray(want[static_cast<size_t>(i)]));
  }
}

}  // namespace
}  // namespace routerelay
