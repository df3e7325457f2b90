// SPDX-License-Identifier: Apache-2.0
// Faults that users of other attention libraries reported with chunks, windows and caches, as tests of whole layers
// through the public API. The ids are those of the list they were collected in.
#include <gmock/gmock.h>

#include <cmath>

#include "flow/pass_cases.h"

namespace routerelay {
namespace {

class ChunkCases : public PassCases {};
INSTANTIATE_TEST_SUITE_P(Backends, ChunkCases, testing::ValuesIn(support::backends()), support::backend_name);

TEST_P(ChunkCases, CO1_ANeedleJustBeforeTheChunkIsFound) {
  Engine e = engine();
  for (int64_t offset : {1, 63, 64, 65, 127, 128, 4096}) {
    Problem p({.q_tokens = 128, .k_tokens = 128 + offset});
    std::array<double, 64> wanted{};
    Philox random(3, 0);
    for (double& x : wanted) x = random.normal();
    p.q.fill(
        [&](int64_t, int64_t, int64_t c) { return wanted[static_cast<size_t>(c)] + 0.1 * random.normal(); });
    for (int64_t c = 0; c < 64; ++c)
      p.k.set(offset - 1, 0, c, static_cast<float>(8 * wanted[static_cast<size_t>(c)]));
    for (Router router : kRouters) {
      SCOPED_TRACE(testing::Message() << name_of(router) << " at offset " << offset);
      Options options = routed(router);
      options.selection.kind = Selection::kTopK;
      options.selection.k = 2;
      Pass pass = begin(e, options);
      p.poison();
      RR_ASSERT_OK(pass.layer(p.layer_args(5)));
      const Routes routes = routes_of(pass);
      for (int64_t row = 0; row < p.rows.size(); ++row) {
        const auto route = routes.lists[row];
        EXPECT_THAT(route, testing::Contains(static_cast<int32_t>((offset - 1) / 64)));
        EXPECT_LT(route.back(), p.rows.rows[static_cast<size_t>(row)].visible_blocks);
      }
      expect_exact(p, routes);
    }
  }
}

TEST_P(ChunkCases, CO2_AWindowIsCountedFromTheQuery) {
  constexpr int64_t kTokens = 2048, kChunk = 512, kNeedle = 200, kNeedleBlock = kNeedle / 64;
  constexpr int kWindow = 8;
  Options options = routed();
  options.selection = {.kind = Selection::kTopK, .k = 0, .floor = 0};  // nothing but the forced blocks
  options.sink_blocks = 0;
  options.local_blocks = kWindow;
  Engine e = engine();
  Problem whole({.q_tokens = kTokens, .k_tokens = kTokens}),
      chunked({.q_tokens = kTokens, .k_tokens = kTokens});
  for (Problem* p : {&whole, &chunked}) {
    p->q.fill([](int64_t, int64_t, int64_t) { return 1; });
    for (int64_t c = 0; c < 64; ++c) {
      p->k.set(kNeedle, 0, c, 8);
      p->v.set(kNeedle, 0, c, 100);
    }
  }
  Pass pass = begin(e, options);
  RR_ASSERT_OK(pass.layer(whole.layer_args(5)));
  for (int64_t first = 0; first < kTokens; first += kChunk) {
    const Sequence part[] = {{first, kChunk, 0, first + kChunk, first}};
    LayerArgs args = chunked.layer_args(5);
    args.sequences = part;
    Pass of_chunk = begin(e, options);
    RR_ASSERT_OK(of_chunk.layer(args));
  }
  EXPECT_TRUE(whole.out.same_bits(chunked.out));
  for (int64_t t = kNeedle; t < kTokens; ++t) {
    const bool inside = t / 64 - kWindow <= kNeedleBlock;
    ASSERT_EQ(whole.out.get(t, 0, 0) > 90, inside) << t;
    ASSERT_EQ(std::fabs(whole.out.get(t, 0, 0)) < 10, !inside) << t;
  }
}

TEST_P(ChunkCases, CO3_AShortChunkAfterALongOneAndTheOtherWayRound) {
  Engine e = engine();
  for (const auto& [first, second] : std::array<std::array<int64_t, 2>, 2>{{{1024, 17}, {1, 1024}}}) {
    const int64_t tokens = first + second;
    for (bool sparse : {false, true}) {
      Options options = sparse ? routed() : Options::from_preset("exact").value();
      options.relay.mode = Relay::kScreen;
      Problem p({.q_tokens = tokens, .k_tokens = tokens});
      const Sequence parts[] = {{0, first, 0, first, 0}, {first, second, 0, tokens, first}};
      for (const Sequence& part : parts) {
        LayerArgs args = p.layer_args(5);
        args.sequences = {&part, 1};
        Pass pass = begin(e, options, part.q_len < 1024);
        RR_ASSERT_OK(pass.layer(args));
        EXPECT_FALSE(pass.report().layers[0].relayed);
        EXPECT_EQ(pass.report().layers[0].dense, !sparse || part.q_len < 1024);
        RR_ASSERT_OK(pass.layer([&] {
          args.layer = 6;
          return args;
        }()));
        EXPECT_EQ(pass.report().layers[1].relayed, sparse && part.q_len == 1024);
      }
      if (!sparse) expect_exact(p, full_routes());
      if (sparse) {  // the short chunk is dense whatever the options say
        const auto exact = exact_attention(p, full_routes());
        const int64_t begin_short = first == 1024 ? 1024 : 0, end_short = first == 1024 ? tokens : 1;
        for (int64_t t = begin_short; t < end_short; ++t)
          EXPECT_NEAR(p.out.get(t, 0, 9), exact.out_at(t, 0, 9), GetParam().tolerance(p).out);
      }
    }
  }
}

// The second prompt finds its first 1024 tokens in the cache: only the new rows are routed, and come out as before.
TEST_P(ChunkCases, EN3_ACachedPrefixChangesNothing) {
  constexpr int64_t kPrefix = 1024, kTokens = 1500;
  Engine e = engine();
  const Options options = routed();
  const ProblemArgs args{.q_tokens = kTokens, .k_tokens = kTokens, .q_heads = 4, .kv_heads = 2};
  Problem whole(args), cached(args);
  Pass a = begin(e, options), b = begin(e, options);
  RR_ASSERT_OK(a.layer(whole.layer_args(5)));
  const Sequence rest[] = {{kPrefix, kTokens - kPrefix, 0, kTokens, kPrefix}};
  LayerArgs layer = cached.layer_args(5);
  layer.sequences = rest;
  RR_ASSERT_OK(b.layer(layer));
  EXPECT_EQ(b.report().layers[0].rows, 4 * ceil_div(kTokens - kPrefix, 64));
  for (int64_t t = kPrefix; t < kTokens; ++t)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t c = 0; c < 64; ++c) ASSERT_EQ(cached.out.get(t, h, c), whole.out.get(t, h, c)) << t;
}

}  // namespace
}  // namespace routerelay
