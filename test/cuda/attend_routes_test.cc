// SPDX-License-Identifier: Apache-2.0
// Attend on the GPU over routes of every shape.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/attend_fixture.h"

namespace routerelay::cuda {
namespace {

using support::full_routes;
using support::make_routes;
using support::Problem;
using support::random_routes;

class CudaAttendRoutes : public OnDevice {};
RR_FOR_EVERY_CONFIG(CudaAttendRoutes);

TEST_P(CudaAttendRoutes, Random) {
  for (const double share : {0.1, 0.5, 0.9}) {
    SCOPED_TRACE(share);
    Problem p(square(1025));
    expect_right(p, random_routes(p.rows, 2, share, 21));
    expect_right(p, scattered_routes(p.rows, 2, share, 22));
  }
}

// Every count from none to all, ending anywhere: odd ones leave half of a step of 64-key blocks empty.
TEST_P(CudaAttendRoutes, EveryCount) {
  const int group = GetParam().heads_per_tile;
  Problem p(square(700, 2 * group, 2));
  const int32_t most = p.rows.rows.back().visible_blocks;
  for (int32_t count = 0; count <= most; ++count) {
    SCOPED_TRACE(count);
    expect_right(p, make_routes(p.rows, 2 * group, [&](int64_t head, int64_t row, int32_t block) {
                   const int32_t visible = p.rows.rows[static_cast<size_t>(row)].visible_blocks;
                   return head < group ? block < count : block >= visible - count;
                 }));
  }
}

TEST_P(CudaAttendRoutes, OneBlock) {
  Problem p(square(700));
  const int32_t most = p.rows.rows.back().visible_blocks;
  for (int32_t only = 0; only < most; ++only) {
    SCOPED_TRACE(only);
    expect_right(p, make_routes(p.rows, 2, [&](int64_t, int64_t, int32_t block) { return block == only; }));
  }
}

TEST_P(CudaAttendRoutes, EmptyRowsGiveZeroAndMinusInfinity) {
  Problem p(square(500, 4, 2));
  const int64_t last = p.rows.size() - 1;
  expect_right(p, make_routes(p.rows, 4, [&](int64_t head, int64_t row, int32_t) {
                 return head != 1 && !(head == 2 && row % 2 == 0) && !(head >= 2 && row == last);
               }));
  EXPECT_EQ(p.out.get(499, 3, 0), 0.0F);
  EXPECT_EQ(p.lse_log2[3 * 500 + 499], -std::numeric_limits<float>::infinity());
  expect_right(p, make_routes(p.rows, 4, [](int64_t, int64_t, int32_t) { return false; }));
}

// The loader reads lists 32 entries at a time.
TEST_P(CudaAttendRoutes, LongLists) {
  const int64_t keys = 70 * GetParam().k_block + 37;
  Problem p(configured({.q_tokens = 130, .k_tokens = keys, .q_heads = 2, .kv_heads = 1}));
  const int32_t most = p.rows.rows.back().visible_blocks;
  ASSERT_GT(most, 64);
  expect_right(p, full_routes());
  for (const int32_t count : {31, 32, 33, 63, 64, 65, 66}) {
    for (int first = 0; first < GetParam().heads_per_tile;
         ++first) {  // of a pair the first one's lists count
      SCOPED_TRACE(testing::Message() << count << ", " << first);
      expect_right(p, make_routes(p.rows, 2, [&](int64_t head, int64_t, int32_t block) {
                     return head == first ? block < count : block >= most - count;
                   }));
    }
  }
  expect_right(p, scattered_routes(p.rows, 2, 0.7, 23));
}

// A caller's lists of fixed length may name blocks in the future, one or more than there are masked steps.
TEST_P(CudaAttendRoutes, BlocksThatNobodySeesAreNotVisited) {
  Problem seen(square(700, 2, 1));
  attend_on_device(seen, full_routes());
  for (const int32_t more : {1, 2, 3, 40}) {
    SCOPED_TRACE(more);
    Problem p(square(700, 2, 1));
    const Routes full = support::listed_full_routes(p.rows, 2);
    Routes longer = full;
    longer.lists.ids.clear();
    longer.lists.offsets = {0};
    for (int64_t i = 0; i < p.n_lists(); ++i) {
      const auto list = full.lists[i];
      auto& ids = longer.lists.ids;
      ids.insert(ids.end(), list.begin(), list.end());
      for (int32_t b = 0; b < more; ++b) ids.push_back(list.back() + 1 + 3 * b);
      longer.lists.offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    attend_on_device(p, longer);
    expect_same_bits(p, seen);
  }
}

TEST_P(CudaAttendRoutes, ListingEveryBlockIsDense) {
  for (const auto& [queries, keys] : {std::pair{300, 300}, {130, 1000}, {1, 257}, {1025, 1025}}) {
    SCOPED_TRACE(testing::Message() << queries << " of " << keys);
    const auto args = configured({.q_tokens = queries, .k_tokens = keys, .q_heads = 4, .kv_heads = 2});
    Problem dense(args), listed(args);
    attend_on_device(dense, full_routes());
    attend_on_device(listed, support::listed_full_routes(listed.rows, 4));
    expect_same_bits(dense, listed);
  }
}

// Keys and values of blocks that no route picks are never read, not even to be weighed with 0.
TEST_P(CudaAttendRoutes, BlocksLeftOutDoNotLeak) {
  Problem p(square(900));
  const int64_t k_block = GetParam().k_block;
  for (int64_t t = 2 * k_block; t < 3 * k_block; ++t)
    for (int64_t c = 0; c < p.k.view.head_dim; ++c) {
      p.k.set(t, 0, c, std::numeric_limits<float>::quiet_NaN());
      p.v.set(t, 0, c, std::numeric_limits<float>::quiet_NaN());
    }
  expect_right(p, make_routes(p.rows, 2, [](int64_t, int64_t, int32_t block) { return block != 2; }));
}

// A list for several heads is that list for each of them. (Heads that share a tile have one anyway, and only between
// them is it to the bit.)
TEST_P(CudaAttendRoutes, SharedByHeads) {
  Problem each(square(700, 12, 2)), shared(square(700, 12, 2));
  for (const int64_t list_heads : {1, 2, 4, 12}) {
    if (12 / list_heads % GetParam().heads_per_tile != 0) continue;
    SCOPED_TRACE(list_heads);
    const Routes routes = random_routes(each.rows, list_heads, 0.4, 23);
    attend_on_device(each, make_routes(each.rows, 12, [&](int64_t head, int64_t row, int32_t block) {
                       const auto list = routes.lists[head / (12 / list_heads) * each.rows.size() + row];
                       return std::ranges::binary_search(list, block);
                     }));
    attend_on_device(shared, routes, {.list_heads = list_heads});
    expect_same_bits(each, shared);
  }
}

// Two calls over halves of the blocks, merged by their LSE, are one call over all of them.
TEST_P(CudaAttendRoutes, HalvesMergeByLse) {
  const auto args = square(512);
  Problem whole(args), early(args), late(args);
  attend_on_device(whole, full_routes());
  const auto half = [&](bool first) {
    return make_routes(whole.rows, 2, [&](int64_t, int64_t, int32_t block) {
      return (block * GetParam().k_block < 256) == first;
    });
  };
  attend_on_device(early, half(true));
  attend_on_device(late, half(false));
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t t = 0; t < 512; ++t) {
      const double a = early.lse_log2[h * 512 + t], b = late.lse_log2[h * 512 + t], top = std::max(a, b);
      const double x = std::exp2(a - top), y = std::exp2(b - top);
      ASSERT_NEAR(top + std::log2(x + y), whole.lse_log2[h * 512 + t], 1e-4) << t;
      for (int64_t c = 0; c < whole.q.view.head_dim; c += 17)
        ASSERT_NEAR((x * early.out.get(t, h, c) + y * late.out.get(t, h, c)) / (x + y),
                    whole.out.get(t, h, c), 3e-2)
            << t;
    }
}

}  // namespace
}  // namespace routerelay::cuda
