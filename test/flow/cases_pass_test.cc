// SPDX-License-Identifier: Apache-2.0
// Faults that users of other attention libraries reported with batches, routes and reports, as tests of whole layers
// through the public API. The ids are those of the list they were collected in.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "flow/pass_cases.h"
#include "reference/scorer.h"
#include "support/exec.h"

namespace routerelay {
namespace {

INSTANTIATE_TEST_SUITE_P(Backends, PassCases, testing::ValuesIn(support::backends()), support::backend_name);

TEST_P(PassCases, SH5_OneEngineForManyLengths) {
  Engine e = engine();
  for (const Options& options : {Options::from_preset("exact").value(), routed()}) {
    std::vector<Problem> kept;
    for (int64_t tokens : {1025, 7, 1500, 129, 1025}) {
      Problem p(with_dtype({.q_tokens = tokens, .k_tokens = tokens}, DType::kBF16));
      Pass pass = begin(e, options);
      RR_ASSERT_OK(pass.layer(p.layer_args(5)));
      expect_exact(p, routes_of(pass));
      kept.push_back(std::move(p));
    }
    EXPECT_TRUE(kept.front().out.same_bits(kept.back().out));
  }
}

// Scores of one row by the definition, over all its blocks.
std::vector<float> reference_scores(const Problem& p, const Options& options, int64_t row, int q_head) {
  Summary summary;
  support::TestExec t;
  const SummaryNeeds needs = SummaryNeeds::of(options);
  EXPECT_TRUE(reference::summarize({p.k.view, p.v.view, p.rows, needs, summary}, t.exec).ok());
  std::vector<int32_t> ids(static_cast<size_t>(p.rows.rows[static_cast<size_t>(row)].visible_blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> score(ids.size());
  const ScoreRequest request{q_head, ids, score.data(), nullptr};
  reference::Scorer(p.q.view, p.k.view, p.rows, summary, options.router, p.scale)
      .score(0, row, q_head / static_cast<int>(p.q.view.heads / p.k.view.heads), {&request, 1});
  return score;
}

// Back ends may pick another block only where its score ties with the worst one picked.
TEST_P(PassCases, NU1_RoutesEqualTheReferencesOrTie) {
  Options options = routed(Router::kAntidiag);
  options.router.stride = 16;
  options.selection = {.kind = Selection::kTopK, .k = 0, .floor = 0.2};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Problem p(with_dtype({.q_tokens = 1000, .k_tokens = 4096, .q_heads = 3, .kv_heads = 1}, dtype));
    Engine mine = engine();
    Engine defining = Engine::create({.backend = "reference", .isa = "", .threads = 2}).value();
    Pass a = begin(mine, options), b = begin(defining, options);
    RR_ASSERT_OK(a.layer(p.layer_args(5)));
    RR_ASSERT_OK(b.layer(p.layer_args(5)));
    const Routes ours = routes_of(a), theirs = routes_of(b);
    const double tie = GetParam().products(dtype) == support::Products::kBF16 ? 0x1p-7 : 1e-5;
    int different = 0;
    for (int64_t list = 0; list < theirs.lists.size(); ++list) {
      const auto mine_ids = ours.lists[list], their_ids = theirs.lists[list];
      ASSERT_EQ(mine_ids.size(), their_ids.size());
      if (std::equal(mine_ids.begin(), mine_ids.end(), their_ids.begin())) continue;
      ++different;
      const auto score =
          reference_scores(p, options, list % p.rows.size(), static_cast<int>(list / p.rows.size()));
      float worst_picked = 1;
      for (int32_t id : their_ids)
        if (id != 0) worst_picked = std::min(worst_picked, score[static_cast<size_t>(id)]);
      for (int32_t id : mine_ids)
        EXPECT_GE(score[static_cast<size_t>(id)], worst_picked * (1 - tie))
            << "list " << list << ", block " << id;
    }
    RecordProperty(std::string("different_routes_") + dtype_name(dtype), different);
  }
}

// LA-2 and EN-2: what the Pass says it visited is what it computed, by a float64 softmax over the same lists and
// bit for bit by attend alone.
TEST_P(PassCases, LA2_RoutesSayWhatWasComputed) {
  Engine e = engine();
  for (const auto& [block, kv_dtype] : {std::pair{64, DType::kF32}, {128, DType::kF32}, {64, DType::kQ8_0}})
    for (Router router : kRouters) {
      SCOPED_TRACE(testing::Message()
                   << name_of(router) << ", blocks of " << block << ", " << dtype_name(kv_dtype));
      Options options = routed(router);
      options.q_block = options.k_block = block;
      if (router == Router::kBall) options.selection.kind = Selection::kThreshold;
      ProblemArgs args{
          .q_tokens = 150, .k_tokens = 700, .q_heads = 4, .kv_heads = 2, .q_block = block, .k_block = block};
      args.kv_dtype = kv_dtype;
      Problem p(args), alone(args);
      Pass pass = begin(e, options);
      RR_ASSERT_OK(pass.layer(p.layer_args(5)));
      const Routes routes = routes_of(pass);
      ASSERT_EQ(routes.lists.size(), p.n_lists());
      for (int64_t list = 0; list < routes.lists.size(); ++list) {
        const auto route = routes.lists[list];
        const Row& row = p.rows.rows[static_cast<size_t>(list % p.rows.size())];
        ASSERT_TRUE(std::adjacent_find(route.begin(), route.end(), std::greater_equal<>()) == route.end());
        ASSERT_EQ(route.front(), 0);
        ASSERT_EQ(route.back(), row.visible_blocks - 1);
        ASSERT_THAT(route, testing::Contains(row.diagonal));
      }
      expect_exact(p, routes);
      support::TestExec t(2, GetParam().isa);
      RR_ASSERT_OK(GetParam().stages->attend(alone.attend_args(routes), t.exec));
      EXPECT_TRUE(alone.out.same_bits(p.out));
      EXPECT_EQ(alone.lse_log2, p.lse_log2);
    }
}

// LG-2 and LG-4 at test size: nothing grows with queries times keys.
TEST_P(PassCases, LG2_WorkspaceIsOneKvHeadPerThread) {
  constexpr int kThreads = 2;
  Engine e = engine(kThreads);
  Problem p(with_dtype({.q_tokens = 128, .k_tokens = 32768, .q_heads = 4, .kv_heads = 2, .head_dim = 128},
                       DType::kBF16));
  Options options = routed();
  options.relay.mode = Relay::kScreen;
  Pass pass = begin(e, options);
  for (int layer : {5, 6}) {
    RR_ASSERT_OK(pass.layer(p.layer_args(layer)));
    const LayerReport& r = pass.report().layers.back();
    const int64_t packed_head = 2 * 4 * p.k.view.tokens * p.k.view.head_dim;  // keys and values in f32
    EXPECT_LE(r.workspace_bytes, kThreads * (packed_head + (1 << 20)));
    EXPECT_LE(static_cast<double>(r.summary_bytes), 0.08 * static_cast<double>(r.kv_bytes_16bit));
  }
}

TEST_P(PassCases, AP1_TheReportNamesWhatRan) {
  Engine e = engine();
  Problem p({});
  Pass pass = begin(e, routed());
  RR_ASSERT_OK(pass.layer(p.layer_args()));
  EXPECT_EQ(pass.report().backend, GetParam().stages->name);
  EXPECT_EQ(pass.report().isa, name_of(GetParam().isa));
  EXPECT_EQ(e.isa(), GetParam().isa);
}

// Prompts 0, 1, ... of the given lengths, one after another. A token's values depend on its prompt and position alone.
Problem batch_of(const std::vector<int>& prompts, const std::vector<int64_t>& lengths, uint64_t seed) {
  ProblemArgs args{.q_tokens = 0, .k_tokens = 0, .q_heads = 2};
  for (int prompt : prompts) {
    const int64_t length = lengths[static_cast<size_t>(prompt)];
    args.sequences.push_back({args.q_tokens, length, args.k_tokens, length, 0});
    args.q_tokens += length;
    args.k_tokens += length;
  }
  Problem p(args);
  for (size_t i = 0; i < prompts.size(); ++i)
    for (support::OwnedTensor* tensor : {&p.q, &p.k, &p.v}) {
      Philox random(seed, static_cast<uint64_t>(prompts[i] * 3 + (tensor == &p.q   ? 0
                                                                  : tensor == &p.k ? 1
                                                                                   : 2)));
      for (int64_t t = 0; t < args.sequences[i].q_len; ++t)
        for (int64_t h = 0; h < tensor->view.heads; ++h)
          for (int64_t c = 0; c < 64; ++c)
            tensor->set(args.sequences[i].q_begin + t, h, c, static_cast<float>(random.normal()));
    }
  return p;
}

TEST_P(PassCases, CC1_BatchMatesChangeNeitherRoutesNorProbes) {
  const std::vector<int64_t> lengths = {200, 600};
  constexpr int kLayers = 6;
  Engine e = engine();
  for (Relay mode : {Relay::kRepair, Relay::kStrict, Relay::kScreen}) {
    SCOPED_TRACE(name_of(mode));
    Options options = routed();
    options.relay.mode = mode;
    options.relay.near_blocks = options.relay.probes = 2;
    // Prompt 1's lists, layer after layer, when it runs in this batch. A probe shows when it is adopted.
    const auto run = [&](const std::vector<int>& prompts) {
      Pass pass = begin(e, options);
      std::vector<std::vector<int32_t>> lists;
      for (int layer = 2; layer < 2 + kLayers; ++layer) {
        Problem p =
            batch_of(prompts, lengths, static_cast<uint64_t>(layer / 3));  // every third layer differs
        const Status status = pass.layer(p.layer_args(layer));
        EXPECT_TRUE(status.ok()) << status.message();
        const Routes routes = routes_of(pass);
        for (int64_t list = 0; list < routes.lists.size(); ++list)
          if (prompts[static_cast<size_t>(p.rows.rows[static_cast<size_t>(list % p.rows.size())].sequence)] ==
              1)
            lists.emplace_back(routes.lists[list].begin(), routes.lists[list].end());
      }
      return lists;
    };
    const auto alone = run({1});
    EXPECT_EQ(alone.size(), static_cast<size_t>(kLayers * 2 * ceil_div(lengths[1], 64)));
    EXPECT_EQ(run({0, 1}), alone);
    EXPECT_EQ(run({1, 0}), alone);
  }
}

// Keys of a block share a direction, queries of a row ask for three of them: which three changes at layer 5.
Problem drifting(int layer) {
  constexpr int64_t kTokens = 24 * 64;
  Problem p({.q_tokens = kTokens, .k_tokens = kTokens});
  support::OwnedTensor directions(DType::kF32, 24, 1, 64);
  directions.fill_normal(17, 0);
  const auto direction = [&](int64_t block, int64_t c) { return directions.get(block, 0, c); };
  Philox noise(18, 0);
  p.k.fill([&](int64_t t, int64_t, int64_t c) { return direction(t / 64, c) + 0.3 * noise.normal(); });
  p.q.fill([&](int64_t t, int64_t, int64_t c) {
    double sum = 0.1 * noise.normal();
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t wish = (t / 64 * 5 + 7 * i + (layer >= 5 ? 3 : 0)) % std::max<int64_t>(1, t / 64);
      sum += direction(wish, c);
    }
    return sum;
  });
  return p;
}

TEST_P(PassCases, CC2_SharingAcrossLayersThatDisagreeIsSeen) {
  Engine e = engine();
  Problem before = drifting(4), after = drifting(5);
  const auto run = [&](Relay mode) {
    Options options = routed(Router::kCentroid);
    options.selection = {.kind = Selection::kTopK, .k = 3};
    options.relay.mode = mode;
    options.relay.horizon = 6;  // layer 1 is the last that is scored in full
    options.relay.near_blocks = options.relay.probes = 2;
    options.audit_every = 2;
    Pass pass = begin(e, options);
    for (int layer = 0; layer < 7; ++layer) {
      const Status status = pass.layer((layer < 5 ? before : after).layer_args(layer));
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return pass.report().layers;
  };
  const auto mass = [](const LayerReport& r) {
    return r.audited_mass_recall / static_cast<double>(r.audited_rows);
  };
  const auto rows = [](const LayerReport& r, Cause cause) {
    return r.rows_by_cause[static_cast<size_t>(cause)];
  };

  const auto fixed = run(Relay::kFixed);
  for (int layer : {0, 1}) EXPECT_FALSE(fixed[static_cast<size_t>(layer)].relayed);
  EXPECT_EQ(fixed[4].kept_rows, fixed[4].routed_rows);
  EXPECT_EQ(fixed[5].kept_rows, fixed[5].routed_rows);  // stale, and the audit says so
  EXPECT_GT(mass(fixed[4]), 0.9);
  EXPECT_LT(mass(fixed[5]), 0.7 * mass(fixed[4]));

  const auto strict = run(Relay::kStrict);
  const int64_t relaying = strict[4].routed_rows - rows(strict[4], Cause::kShort);
  EXPECT_GE(relaying, 8);
  EXPECT_EQ(strict[4].kept_rows, relaying);  // the same layer again
  // Not all: the few challengers of a row may be as bad as its stale route.
  EXPECT_GE(rows(strict[5], Cause::kFired), relaying * 3 / 4);
  EXPECT_GT(mass(strict[5]), 0.9);

  const auto repair = run(Relay::kRepair);
  EXPECT_TRUE(mass(repair[5]) < 0.9 || rows(repair[5], Cause::kSwaps) + rows(repair[5], Cause::kProbe) > 0);
}

TEST_P(PassCases, EN1_PromptsUnderTheGateAreDense) {
  Engine e = engine();
  Problem exact({.q_tokens = 700, .k_tokens = 700}), gated({.q_tokens = 700, .k_tokens = 700});
  Pass a = begin(e, Options::from_preset("exact").value()),
       b = begin(e, Options::from_preset("balanced").value());
  RR_ASSERT_OK(a.layer(exact.layer_args(5)));
  RR_ASSERT_OK(b.layer(gated.layer_args(5)));
  EXPECT_TRUE(b.report().layers[0].dense);
  EXPECT_EQ(b.report().layers[0].scored_blocks, 0);
  EXPECT_TRUE(exact.out.same_bits(gated.out));
}

}  // namespace
}  // namespace routerelay
