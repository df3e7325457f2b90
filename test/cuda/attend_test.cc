// SPDX-License-Identifier: Apache-2.0
// Attend on the GPU against the float64 softmax: lengths, offsets, heads, layouts, scores of every size.
#include <gtest/gtest.h>

#include "cuda/attend_fixture.h"
#include "routerelay/cuda.hpp"

namespace routerelay::cuda {
namespace {

using support::full_routes;
using support::Layout;
using support::Problem;
using support::ProblemArgs;
using support::random_routes;

class CudaAttend : public OnDevice {};
RR_FOR_EVERY_CONFIG(CudaAttend);

TEST_P(CudaAttend, EveryLength) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 127, 128, 129, 200, 300, 1025}) {
    SCOPED_TRACE(tokens);
    Problem p(square(tokens));
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, 2, 0.4, 3));
  }
}

// An offset that is no multiple of a block leaves up to three blocks of a row partly seen.
TEST_P(CudaAttend, EveryOffset) {
  for (const int64_t offset : {1, 63, 64, 65, 127, 128, 200})
    for (const int64_t queries : {1, 64, 128, 130, 257}) {
      SCOPED_TRACE(testing::Message() << queries << " queries at " << offset);
      const int64_t q_heads = 2 * GetParam().heads_per_tile;
      Problem p(
          configured({.q_tokens = queries, .k_tokens = queries + offset, .q_heads = q_heads, .kv_heads = 2}));
      expect_right(p, full_routes());
      expect_right(p, random_routes(p.rows, q_heads, 0.5, 9));
      expect_right(p, scattered_routes(p.rows, q_heads, 0.5, 10));
    }
}

TEST_P(CudaAttend, HeadsAndGroups) {
  for (const auto& [q_heads, kv_heads] : {std::pair{1, 1}, {3, 3}, {4, 1}, {12, 2}, {14, 2}}) {
    SCOPED_TRACE(testing::Message() << q_heads << " over " << kv_heads << " heads");
    Problem p(square(260, q_heads, kv_heads));
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, q_heads, 0.5, 4));
  }
}

TEST_P(CudaAttend, EveryQuerySeesEveryKeyUnlessCausal) {
  for (const auto& [queries, keys] : {std::pair{1, 1}, {100, 1}, {128, 128}, {300, 129}, {200, 1000}}) {
    SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys");
    ProblemArgs args = configured({.q_tokens = queries, .k_tokens = keys, .q_heads = 2, .kv_heads = 1});
    args.sequences = {{0, queries, 0, keys, keys}};
    Problem p(args);
    expect_right(p, full_routes(), {.causal = false});
    expect_right(p, scattered_routes(p.rows, 2, 0.5, 6), {.causal = false});
  }
}

TEST_P(CudaAttend, Layouts) {
  for (const Layout layout : {Layout::kTokenMajor, Layout::kHeadMajor, Layout::kPadded}) {
    ProblemArgs args = square(300, 4, 2);
    args.layout = layout;
    Problem p(args);
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, 4, 0.5, 1));
  }
}

// What a caller says of an axis with one element may be anything.
TEST_P(CudaAttend, TheStrideOfAnAxisOfOneDoesNotMatter) {
  Problem p(square(1, 1, 1));
  p.poison();
  DeviceAttend call = call_of(p, full_routes());
  call.args.q.token_stride = 1, call.args.q.head_stride = 0;
  call.args.out.token_stride = -3, call.args.out.head_stride = 7;
  call.args.k.token_stride = 0, call.args.v.head_stride = 5;
  RR_ASSERT_OK(call.enqueue());
  call.fetch(p);
  expected(p, full_routes()).compare(p);
}

TEST_P(CudaAttend, LseIsOptional) {
  Problem with(square(300)), without(square(300));
  attend_on_device(with, full_routes());
  expect_right(without, full_routes(), {.lse = false});
  EXPECT_TRUE(with.out.same_bits(without.out));
  Problem empty(square(200));  // empty rows are written elsewhere
  expect_right(empty, support::make_routes(empty.rows, 2, [](int64_t, int64_t, int32_t) { return false; }),
               {.lse = false});
}

TEST_P(CudaAttend, Scales) {
  for (const float scale : {1e-37F, 1e-3F, 1.0F, 5.0F}) {
    SCOPED_TRACE(scale);
    Problem p(square(400));
    p.scale = scale;
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, 2, 0.5, 8));
  }
}

// From nothing to a few keys that take it all: beyond 2^27 bits a last place of a score would be worth too much.
TEST_P(CudaAttend, ExtremeScores) {
  for (const double size : {1e-30, 1.0, 30.0, 3000.0, 6e4, 1e7}) {
    SCOPED_TRACE(size);
    Problem p(square(300));
    if (size > 65504 && p.q.view.dtype == DType::kF16) continue;
    p.q.fill([&](int64_t, int64_t, int64_t c) { return c == 0 ? size : 0; });
    p.k.fill([&](int64_t t, int64_t, int64_t) { return static_cast<double>(t % 97) / 4; });
    expect_right(p, full_routes());
  }
}

// 3,000 keys that are each worth e^-15 of one, the first or the last that is visited: their sum must not be lost.
TEST_P(CudaAttend, ManyFarBelowOne) {
  for (const int64_t one : {0, 2869}) {
    SCOPED_TRACE(one);
    ProblemArgs args = configured({.q_tokens = 130, .k_tokens = 3000, .q_heads = 2, .kv_heads = 1});
    args.sequences = {{0, 130, 0, 3000, 2870}};
    Problem p(args);
    p.scale = 1;
    p.q.fill([](int64_t, int64_t, int64_t c) { return c == 0 ? 1 : 0; });
    p.k.fill([&](int64_t t, int64_t, int64_t) { return t == one ? 15 : 0; });
    expect_right(p, full_routes());
  }
}

// Blocks are walked from the last to the first. Every 64 keys the scores of all queries change by some 200 bits: rising
// along the walk, a row's earlier steps lose their weight again and again; falling, they keep it.
TEST_P(CudaAttend, MaximaThatMoveFar) {
  constexpr int64_t kTokens = 900;
  for (const bool rising : {true, false}) {
    SCOPED_TRACE(rising);
    Problem p(square(kTokens));
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < 2; ++h) p.q.set(t, h, 0, 24);
      p.k.set(t, 0, 0, static_cast<float>((rising ? kTokens - t : t) / 64 * 64));
    }
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, 2, 0.5, 12));
  }
}

// Now and then a key twelve times as long: maxima move by a little in most steps and by much in some, not for all
// queries alike.
TEST_P(CudaAttend, LongKeysHereAndThere) {
  for (const int64_t every : {1, 7, 150}) {
    SCOPED_TRACE(every);
    Problem p(square(700));
    for (int64_t t = 0; t < 700; t += every)
      for (int64_t c = 0; c < p.k.view.head_dim; ++c) p.k.set(t, 0, c, 12 * p.k.get(t, 0, c));
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, 2, 0.5, 13));
    expect_right(p, scattered_routes(p.rows, 2, 0.5, 14));
  }
}

// A query that is not finite spoils its own output only, a key those of queries that see it. (Values do spread, to
// queries of the same row: a probability of 0 times NaN is NaN.)
TEST_P(CudaAttend, NonFiniteQueriesAndKeysDoNotSpread) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Problem p(square(300));
    p.q.set(50, 1, 3, bad);
    p.k.set(290, 0, 3, bad);
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, 2, 0.5, 16));
    EXPECT_TRUE(std::isnan(p.out.get(50, 1, 0)));
  }
}

// Small, and every way through the kernel: compute-sanitizer takes minutes for what takes a moment without it.
class CudaAttendSanitizer : public OnDevice {};
RR_FOR_EVERY_CONFIG(CudaAttendSanitizer);

TEST_P(CudaAttendSanitizer, EveryWay) {
  ProblemArgs args = configured({.q_tokens = 420, .k_tokens = 600, .q_heads = 4, .kv_heads = 2});
  args.sequences = {
      {0, 128, 0, 300, 172}, {128, 1, 300, 1, 0}, {129, 60, 301, 0, 0}, {189, 230, 301, 290, 63}};
  Problem p(args);
  for (int64_t c = 0; c < p.k.view.head_dim; ++c) p.k.set(10, 0, c, 40 * p.k.get(10, 0, c));
  expect_right(p, full_routes(), {.spare_rows = 1});
  expect_right(p, scattered_routes(p.rows, 4, 0.6, 15), {.spare_rows = 1});
  expect_right(p, scattered_routes(p.rows, 4, 0.6, 15), {.spare_rows = 1, .paging = Paging{}});
  expect_right(p, full_routes(), {.paging = Paging{.page_size = 64, .layout = Layout::kHeadMajor}});
  // Twenty rows, one after another: tiles, slots and flags are used again, after long rows, short ones and empty ones.
  expect_right(p, full_routes(), {.multiprocessors = 1});
  expect_right(p, scattered_routes(p.rows, 4, 0.3, 16), {.spare_rows = 1, .multiprocessors = 1});
}

}  // namespace
}  // namespace routerelay::cuda
