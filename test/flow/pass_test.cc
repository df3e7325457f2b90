// SPDX-License-Identifier: Apache-2.0
// A Pass as its users see it: chunks, batches, threads, presets, reports and mistakes, on every back end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "routerelay/engine.hpp"
#include "support/problem.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Problem;
using support::ProblemArgs;

// A prompt with structure, layer by layer: keys of a block share a direction, queries ask for a few of them.
Problem prompt(int64_t tokens, int layer, int64_t q_heads = 4, int64_t kv_heads = 2) {
  ProblemArgs a;
  a.q_tokens = a.k_tokens = tokens;
  a.q_heads = q_heads;
  a.kv_heads = kv_heads;
  a.seed = 11;
  Problem p(a);
  const auto direction = [](int64_t topic, int64_t c, int at) {
    return std::sin(0.7 * static_cast<double>((topic * 131 + c * 17) % 997) + 0.02 * at);
  };
  Philox noise(5, static_cast<uint64_t>(layer));
  p.k.fill([&](int64_t t, int64_t h, int64_t c) {
    return 1.5 * direction(t / 64 + 7 * h, c, layer) + 0.5 * noise.normal();
  });
  p.q.fill([&](int64_t t, int64_t h, int64_t c) {
    const int64_t topic = (t / 64 * 7 + h) % std::max<int64_t>(1, t / 64 + 1);
    return 1.2 * direction(topic + 7 * (h / (q_heads / kv_heads)), c, layer) + 0.5 * noise.normal();
  });
  return p;
}

Engine engine(const std::string& backend, int threads = 2) {
  Result<Engine> e = Engine::create({.backend = backend, .isa = "", .threads = threads});
  EXPECT_TRUE(e.ok()) << e.status().message();
  return std::move(e).value();
}

Options preset(const char* name) {
  Options o = Options::from_preset(name).value();
  o.dense_below = 256;  // short prompts, so that the reference stays quick
  o.relay.auto_off = false;
  return o;
}

struct Replay {
  std::vector<support::OwnedTensor> out;
  std::vector<std::vector<int32_t>> picked;
  Report report;
};

// All layers of a prompt, in chunks of `chunk` queries over the keys so far; out and routes put together again.
Replay replay(Engine& e, const Options& options, int64_t tokens, int64_t chunk, int layers = 5,
              int64_t q_heads = 4, int64_t kv_heads = 2) {
  Replay result;
  std::vector<Problem> problems;
  for (int l = 0; l < layers; ++l) problems.push_back(prompt(tokens, l, q_heads, kv_heads));
  result.picked.resize(static_cast<size_t>(layers));
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    Pass pass = Pass::begin(e, options).value();
    const int64_t end = std::min(tokens, begin + chunk);
    for (int l = 0; l < layers; ++l) {
      Problem& p = problems[static_cast<size_t>(l)];
      const Sequence part{begin, end - begin, 0, end, begin};
      LayerArgs a = p.layer_args(l);
      a.sequences = {&part, 1};
      const Status status = pass.layer(a);
      EXPECT_TRUE(status.ok()) << status.message();
      const auto ids = pass.picked();
      result.picked[static_cast<size_t>(l)].insert(result.picked[static_cast<size_t>(l)].end(), ids.begin(),
                                                   ids.end());
    }
    result.report = pass.report();
  }
  for (Problem& p : problems) result.out.push_back(std::move(p.out));
  return result;
}

class PassOn : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, PassOn, testing::Values("reference", "cpu"),
                         [](const auto& i) { return std::string(i.param); });

TEST_P(PassOn, ChunksOfWholeRowsGiveTheWholePromptsOutput) {
  Engine e = engine(GetParam());
  for (const char* name : {"careful", "balanced", "fast"}) {
    const Replay whole = replay(e, preset(name), 900, 900, 4, 2, 1),
                 parts = replay(e, preset(name), 900, 384, 4, 2, 1);
    for (size_t l = 0; l < whole.out.size(); ++l)
      EXPECT_TRUE(whole.out[l].same_bits(parts.out[l])) << name << " layer " << l;
  }
}

TEST_P(PassOn, ExactGivesTheWholesOutputForAnyChunking) {
  Engine e = engine(GetParam());
  const Replay whole = replay(e, preset("exact"), 450, 450, 1);
  for (int64_t chunk : {37, 64, 333}) {
    const Replay parts = replay(e, preset("exact"), 450, chunk, 1);
    double worst = 0;
    for (int64_t t = 0; t < 450; ++t)
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t c = 0; c < 64; ++c)
          worst = std::max(
              worst, std::fabs(static_cast<double>(whole.out[0].get(t, h, c)) - parts.out[0].get(t, h, c)));
    EXPECT_LT(worst, 4e-2) << chunk;  // rows fall differently on bf16 kernels: rounding of another order
  }
}

TEST_P(PassOn, ThreadsChangeNoBit) {
  Engine one = engine(GetParam(), 1), three = engine(GetParam(), 3);
  const Replay a = replay(one, preset("balanced"), 700, 700), b = replay(three, preset("balanced"), 700, 700);
  for (size_t l = 0; l < a.out.size(); ++l) EXPECT_TRUE(a.out[l].same_bits(b.out[l])) << l;
  EXPECT_EQ(a.picked, b.picked);
}

TEST_P(PassOn, RelayModesRunAndReportWhatTheyScored) {
  Engine e = engine(GetParam());
  for (Relay mode : {Relay::kOff, Relay::kFixed, Relay::kStrict, Relay::kMass, Relay::kRepair,
                     Relay::kCertify, Relay::kScreen})
    for (Router router : {Router::kCentroid, Router::kSub, Router::kSampled, Router::kAntidiag, Router::kBox,
                          Router::kBall}) {
      Options o = preset("balanced");
      o.relay.mode = mode;
      o.router.kind = router;
      o.audit_every = 3;
      if (mode == Relay::kCertify) o.selection.kind = Selection::kTopK;
      // Every pair on the fast back end; on the reference every mode and every router once.
      if (e.backend() == std::string("reference") && mode != Relay::kScreen && router != Router::kSampled)
        continue;
      const Replay r = replay(e, o, 700, 700, 4, 2, 1);
      ASSERT_EQ(r.report.layers.size(), 4u);
      EXPECT_TRUE(r.report.layers[1].dense);
      EXPECT_FALSE(r.report.layers[2].dense);
      EXPECT_EQ(r.report.layers[3].relayed, mode != Relay::kOff);
      EXPECT_GT(r.report.density(), 0) << name_of(mode) << name_of(router);
      EXPECT_LE(r.report.density(), 1);
      EXPECT_LT(r.report.density(), r.report.model_density());
      EXPECT_GT(r.report.mass_recall(), 0);
      EXPECT_LT(r.report.mass_recall(), 1.0001);
      const bool loses_nothing = mode == Relay::kOff || mode == Relay::kCertify;
      if (loses_nothing) {
        EXPECT_DOUBLE_EQ(r.report.id_recall(), 1) << name_of(router);
      }
    }
}

TEST_P(PassOn, GroupHeadsShareOneRoute) {
  Engine e = engine(GetParam());
  Options o = preset("balanced");
  o.heads = Heads::kGroup;
  Problem p = prompt(700, 2);
  Pass pass = Pass::begin(e, o).value();
  RR_ASSERT_OK(pass.layer(p.layer_args(2)));
  const auto offsets = pass.row_offsets();
  const auto picked = pass.picked();
  const size_t rows = (offsets.size() - 1) / 4;
  for (size_t r = 0; r < rows; ++r) {
    const auto list = [&](size_t head) {
      const size_t i = head * rows + r;
      return std::vector<int32_t>(picked.begin() + offsets[i], picked.begin() + offsets[i + 1]);
    };
    EXPECT_EQ(list(0), list(1));
    EXPECT_EQ(list(2), list(3));
  }
}

TEST_P(PassOn, DenseRowsAndFinalChunksSeeEverything) {
  Engine e = engine(GetParam());
  Problem p = prompt(700, 2);
  Options o = preset("balanced");
  o.dense_below = 2048;
  Pass short_prompt = Pass::begin(e, o).value();
  RR_ASSERT_OK(short_prompt.layer(p.layer_args(2)));
  EXPECT_TRUE(short_prompt.report().layers[0].dense);
  EXPECT_DOUBLE_EQ(short_prompt.report().model_density(), 1);
  Pass final = Pass::begin(e, preset("balanced"), {.final_chunk = true}).value();
  RR_ASSERT_OK(final.layer(p.layer_args(2)));
  EXPECT_TRUE(final.report().layers[0].dense);
}

TEST_P(PassOn, UnknownLayersRouteWithoutRelay) {
  Engine e = engine(GetParam());
  Problem p = prompt(700, 2);
  Pass pass = Pass::begin(e, preset("balanced")).value();
  for (int i = 0; i < 3; ++i) RR_ASSERT_OK(pass.layer(p.layer_args(-1)));
  for (const LayerReport& l : pass.report().layers) {
    EXPECT_FALSE(l.dense);
    EXPECT_FALSE(l.relayed);
    EXPECT_EQ(l.screened_blocks, 0);
  }
}

TEST_P(PassOn, RelayTurnsItselfOffWhereItDoesNotPay) {
  Engine e = engine(GetParam());
  Options o = preset("balanced");
  o.relay.auto_off = true;
  o.relay.wide = 1000;  // every block becomes a candidate
  const Replay r = replay(e, o, 700, 700, 7, 2, 1);
  EXPECT_TRUE(r.report.layers[4].relayed);
  EXPECT_TRUE(r.report.layers[5].auto_off);
  EXPECT_EQ(r.report.layers[5].screened_blocks, 0);
}

TEST(Pass, ABatchMateThatStopsRelayingStopsNobodyElse) {
  // In 400 tokens the candidates are all there is; in 2,000 they are not.
  constexpr int64_t kShort = 400, kLong = 2000;
  Engine e = engine("cpu");
  Options o = preset("fast");
  o.selection.floor = 0.05;
  o.selection.least = 4;
  o.selection.cap = 0.5;
  o.local_blocks = 0;
  o.relay.auto_off = true;
  Pass together = Pass::begin(e, o).value(), alone = Pass::begin(e, o).value();
  for (int layer = 2; layer < 8; ++layer) {
    Problem p = prompt(kShort + kLong, layer, 2, 1);
    const Sequence both[] = {{0, kShort, 0, kShort, 0}, {kShort, kLong, kShort, kLong, 0}};
    LayerArgs a = p.layer_args(layer);
    a.sequences = both;
    RR_ASSERT_OK(together.layer(a));
    Problem same = prompt(kShort + kLong, layer, 2, 1);
    LayerArgs b = same.layer_args(layer);
    b.sequences = {both + 1, 1};
    RR_ASSERT_OK(alone.layer(b));
    for (int64_t t = kShort; t < kShort + kLong; ++t)
      for (int64_t h = 0; h < 2; ++h)
        ASSERT_EQ(p.out.get(t, h, 0), same.out.get(t, h, 0)) << "layer " << layer << " token " << t;
  }
  EXPECT_TRUE(together.report().layers.back().auto_off);
  EXPECT_FALSE(alone.report().layers.back().auto_off);
}

TEST_P(PassOn, AnotherGeometryStartsAnotherLedger) {
  Engine e = engine(GetParam());
  Problem a = prompt(700, 2), b = prompt(600, 3);
  Pass pass = Pass::begin(e, preset("balanced")).value();
  RR_ASSERT_OK(pass.layer(a.layer_args(2)));
  RR_ASSERT_OK(pass.layer(b.layer_args(3)));
  EXPECT_FALSE(pass.report().layers[1].relayed);
}

TEST_P(PassOn, AuditingQueriesWithoutKeysMissesNothing) {
  Engine e = engine(GetParam());
  Options o = preset("balanced");
  o.dense_below = 0;
  o.audit_every = 1;
  Pass pass = Pass::begin(e, o).value();
  Problem p = prompt(100, 3);
  p.sequences = {{0, 64, 0, 0, 0}};
  const Status status = pass.layer(p.layer_args(3));
  ASSERT_TRUE(status.ok()) << status.message();
  const LayerReport& r = pass.report().layers.back();
  EXPECT_EQ(r.audited_rows, 4);
  EXPECT_EQ(r.audited_mass_recall, 4);
}

// A sequence without queries has no row, but it counts: relaying is watched per sequence.
TEST_P(PassOn, ASequenceWithoutQueriesMayComeAndGo) {
  Engine e = engine(GetParam());
  Options o = preset("balanced");
  o.relay.auto_off = true;
  Pass pass = Pass::begin(e, o).value();
  for (int l = 0; l < 6; ++l) {
    Problem p = prompt(500, l);
    if (l % 2 == 1) p.sequences.push_back({500, 0, 0, 500, 0});
    const Status status = pass.layer(p.layer_args(l));
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(Pass, LayersMustComeInOrder) {
  Engine e = engine("reference");
  Problem p = prompt(70, 0);
  Pass pass = Pass::begin(e, preset("exact")).value();
  RR_ASSERT_OK(pass.layer(p.layer_args(3)));
  support::expect_error(pass.layer(p.layer_args(3)), Code::kInvalidArgument,
                        "layer: layer is 3 after 3; layers come in order, a new pass begins anew");
}

TEST(Pass, AbortStopsALayer) {
  Engine e = engine("cpu");
  e.set_abort([] { return true; });
  Problem p = prompt(700, 0);
  Pass pass = Pass::begin(e, preset("exact")).value();
  EXPECT_EQ(pass.layer(p.layer_args(0)).code(), Code::kAborted);
  EXPECT_TRUE(pass.report().layers.empty());
  e.set_abort({});
  RR_ASSERT_OK(pass.layer(p.layer_args(0)));
}

TEST(Engine, NamesWhatIsLegal) {
  support::expect_error(Engine::create({.backend = "gpu", .isa = "", .threads = 1}).status(),
                        Code::kInvalidArgument, "engine: backend is 'gpu'; legal: cpu, reference");
  support::expect_error(Engine::create({.backend = "", .isa = "sse", .threads = 1}).status(),
                        Code::kInvalidArgument,
                        "engine: isa is 'sse'; legal: scalar, avx2, avx512, avx512bf16, amx");
  support::expect_error(Engine::create({.backend = "", .isa = "", .threads = -1}).status(),
                        Code::kInvalidArgument,
                        "engine: threads is -1; legal: 1 to 4096, or 0 for all cores");
  Engine e = engine("cpu");
  support::expect_error(e.set_threads(0), Code::kInvalidArgument, "engine: threads is 0; legal: 1 to 4096");
}

TEST(Options, NameWhatIsLegal) {
  support::expect_error(Options::from_preset("quick").status(), Code::kInvalidArgument,
                        "options: preset is 'quick'; legal: exact, careful, balanced, fast");
  Options o = preset("balanced");
  o.q_block = 96;
  support::expect_error(o.check(), Code::kInvalidArgument, "options: q_block is 96; legal: 64, 128");
  o = preset("balanced");
  o.selection.p = 1.5;
  support::expect_error(o.check(), Code::kInvalidArgument, "options: selection.p is 1.5; legal: 0 to 1");
  o = preset("balanced");
  o.relay.mode = Relay::kCertify;
  support::expect_error(
      o.check(), Code::kInvalidArgument,
      "options: relay.mode is certify with selection.kind top_p; its cut holds only for top_k");
}

}  // namespace
}  // namespace routerelay
