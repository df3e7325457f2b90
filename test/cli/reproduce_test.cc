// SPDX-License-Identifier: Apache-2.0
// The paper's rules written down a second time, as plainly as possible, must agree with the engine's row for row; and
// the whole reproduction must land on the published tables.
#include "cli/reproduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "bench/paper/relayed_run.h"
#include "bench/paper/run_cases.h"
#include "support/status.h"

namespace routerelay {
namespace {

using paper::true_routes;

constexpr Shape kSmall = {.layers = 10, .rows = 40, .blocks = 160, .k = 12};

struct Source {
  const char* name;
  std::unique_ptr<DriftingScores> (*make)(uint64_t seed);
};
const Source kSources[] = {
    {"accumulating", [](uint64_t seed) { return accumulating_scores(kSmall, .03, seed); }},
    {"products", [](uint64_t seed) { return product_scores(kSmall, .003, seed); }},
    {"fitted",
     [](uint64_t seed) {
       return fitted_scores(kSmall, {.74, .21, .05, .95}, seed);
     }},
};

// A row of the ledger without random challengers, so that nothing but the rule decides.
struct NaiveRow {
  std::set<int32_t> route, near;
  int age = 0;
};

// Ids by score, best first, smaller id first among equals.
std::vector<int32_t> ranked(const float* score, const std::set<int32_t>& ids) {
  std::vector<int32_t> out(ids.begin(), ids.end());
  std::stable_sort(out.begin(), out.end(), [score](int32_t a, int32_t b) { return score[a] > score[b]; });
  return out;
}

void take_best(NaiveRow& row, const float* score, const std::set<int32_t>& ids, size_t k, size_t near) {
  const std::vector<int32_t> order = ranked(score, ids);
  row.route = {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k)};
  const size_t end = std::min(order.size(), k + near);
  row.near = {order.begin() + static_cast<std::ptrdiff_t>(k),
              order.begin() + static_cast<std::ptrdiff_t>(end)};
}

struct NaiveCounts {
  int64_t rerouted = 0, pairs = 0;
};

// One layer of strict or repair for one row, as the paper and docs/reproduce.md describe it.
void naive_layer(Relay mode, bool first, int near, NaiveRow& row, const float* score, NaiveCounts& counts) {
  std::set<int32_t> all, known = row.route;
  for (int32_t b = 0; b < kSmall.blocks; ++b) all.insert(b);
  known.insert(row.near.begin(), row.near.end());
  bool full = first;
  if (!first && mode == Relay::kStrict) {
    counts.pairs += static_cast<int64_t>(known.size());
    float alpha = std::numeric_limits<float>::infinity(), beta = -alpha;
    for (int32_t b : row.route) alpha = std::min(alpha, score[b]);
    for (int32_t b : row.near) beta = std::max(beta, score[b]);
    full = !(alpha > beta);
  } else if (!first) {
    full = ++row.age >= 8;
    if (!full) {
      counts.pairs += static_cast<int64_t>(known.size());
      take_best(row, score, known, kSmall.k, static_cast<size_t>(near));
    }
  }
  if (!full) return;
  ++counts.rerouted;
  counts.pairs += kSmall.blocks;
  row.age = 0;
  take_best(row, score, all, kSmall.k, static_cast<size_t>(near));
}

class Agreement : public testing::TestWithParam<std::tuple<Source, Relay>> {};

TEST_P(Agreement, EngineFollowsTheNaiveRuleRowForRow) {
  const auto& [source, mode] = GetParam();
  constexpr int kNear = 20;
  const auto scores = source.make(7);
  RelayedRun run(kSmall, {.mode = mode, .near_blocks = kNear, .probes = 0}, 7);
  std::vector<NaiveRow> naive(kSmall.rows);
  NaiveCounts counts;
  for (int layer = 0; layer < kSmall.layers; ++layer) {
    scores->next_layer();
    RR_ASSERT_OK(run.layer(scores->costly(), {}));
    for (int r = 0; r < kSmall.rows; ++r) {
      NaiveRow& row = naive[static_cast<size_t>(r)];
      naive_layer(mode, layer == 0, kNear, row, &scores->costly()[static_cast<size_t>(r * kSmall.blocks)],
                  counts);
      const auto route = run.route(r);
      ASSERT_EQ(std::set<int32_t>(route.begin(), route.end()), row.route)
          << "layer " << layer << " row " << r;
    }
  }
  EXPECT_EQ(run.counts().rerouted, counts.rerouted);
  EXPECT_EQ(run.counts().pairs, counts.pairs);
}
INSTANTIATE_TEST_SUITE_P(Reproduce, Agreement,
                         testing::Combine(testing::ValuesIn(kSources),
                                          testing::Values(Relay::kStrict, Relay::kRepair)),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param).name) + "_" +
                                  name_of(std::get<1>(of.param));
                         });

TEST(Reproduce, CertifyAndOffFindTheTrueRoutesAndScoreEverything) {
  for (Relay mode : {Relay::kCertify, Relay::kOff}) {
    const auto scores = fitted_scores(kSmall, {.45, .30, .25, .97}, 3);
    RelayedRun run(kSmall, {.mode = mode}, 3);
    for (int layer = 0; layer < kSmall.layers; ++layer) {
      scores->next_layer();
      RR_ASSERT_OK(run.layer(scores->costly(), {}));
      const auto truth = true_routes(kSmall, scores->costly());
      for (int r = 0; r < kSmall.rows; ++r) {
        const auto route = run.route(r);
        EXPECT_EQ(std::vector<int32_t>(route.begin(), route.end()), truth[static_cast<size_t>(r)]);
      }
    }
    EXPECT_EQ(run.counts().pairs, run.counts().all_pairs);
    EXPECT_EQ(run.counts().rerouted, run.counts().rows);
  }
}

TEST(Reproduce, GeneratorsGiveTheScoresThatTheyDescribe) {
  const Shape shape{.layers = 2, .rows = 200, .blocks = 256, .k = 16};
  const auto accumulating = accumulating_scores(shape, .03, 1);
  accumulating->next_layer();
  double square = 0, product = 0, cheap_square = 0;
  const std::vector<float> cheap = accumulating->cheap(kCheapMiddle);
  for (size_t i = 0; i < cheap.size(); ++i) {
    const double x = accumulating->costly()[i], y = cheap[i];
    square += x * x;
    product += x * y;
    cheap_square += y * y;
  }
  EXPECT_NEAR(std::sqrt(square / static_cast<double>(cheap.size())), .54, .01);
  EXPECT_NEAR(product / std::sqrt(square * cheap_square), kCheapMiddle, .01);

  const auto products = product_scores(shape, .003, 1);
  products->next_layer();
  for (float s : products->costly()) EXPECT_LE(std::fabs(s), 1.0001f);  // unit vectors

  const auto fitted = fitted_scores(shape, {.60, .28, .12, .97}, 1);
  fitted->next_layer();
  double mass = 0;
  const auto truth = true_routes(shape, fitted->costly());
  for (int r = 0; r < shape.rows; ++r) {
    const float* row = &fitted->costly()[static_cast<size_t>(r * shape.blocks)];
    double top = 0, all = 0;
    for (int b = 0; b < shape.blocks; ++b) all += std::exp(static_cast<double>(row[b]));
    for (int32_t b : truth[static_cast<size_t>(r)]) top += std::exp(static_cast<double>(row[b]));
    mass += top / all;
  }
  EXPECT_NEAR(mass / shape.rows, .95, 1e-3);
}

TEST(Reproduce, ThreadsChangeNothing) {
  paper::Case c{.experiment = 1, .drift = .03, .shape = kSmall, .repetitions = 5};
  c.scores = [](uint64_t seed) { return accumulating_scores(kSmall, .03, seed); };
  c.variants = {{.relay = {.mode = Relay::kStrict}},
                {.relay = {.mode = Relay::kScreen}, .cheap = kCheapMiddle}};
  const auto one = paper::run_cases({c}, {.threads = 1}), three = paper::run_cases({c}, {.threads = 3});
  RR_ASSERT_OK(one.status());
  RR_ASSERT_OK(three.status());
  for (size_t v = 0; v < c.variants.size(); ++v) {
    const paper::Outcome &a = one.value()[0].variants[v], &b = three.value()[0].variants[v];
    EXPECT_EQ(a.counts.pairs, b.counts.pairs);
    EXPECT_EQ(a.counts.rerouted, b.counts.rerouted);
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.cheap_ids, b.cheap_ids);
  }
}

TEST(Reproduce, StopsWhenAsked) {
  const auto result = reproduce_routerelay({.quick = true, .threads = 1, .abort = [] { return true; }});
  EXPECT_EQ(static_cast<int>(result.status().code()), static_cast<int>(Code::kAborted));
}

// The records that scripts pick: by name, experiment, drift or key_blocks, mode.
const Record* find(const std::vector<Record>& records, const std::string& name,
                   const nlohmann::json& params) {
  for (const Record& r : records) {
    const bool fits = std::all_of(params.items().begin(), params.items().end(), [&](const auto& item) {
      return r.params.contains(item.key()) && r.params[item.key()] == item.value();
    });
    if (r.name == name && fits) return &r;
  }
  return nullptr;
}

TEST(Reproduce, QuickRunLandsOnThePublishedTables) {
  double last = 0;
  const auto result = reproduce_routerelay(
      {.quick = true, .progress = [&](const std::string&, double done) { last = done; }});
  RR_ASSERT_OK(result.status());
  for (const std::string& missed : result->missed) ADD_FAILURE() << missed;
  EXPECT_EQ(last, 1);
  const auto& records = result->records;
  for (const auto& [drift, rho] : {std::pair{.01, 25.0}, {.03, 55.4}, {.06, 78.2}}) {
    const Record* r = find(records, "rerouted", {{"experiment", 1}, {"drift", drift}, {"mode", "strict"}});
    ASSERT_NE(r, nullptr) << drift;
    EXPECT_EQ(r->params["published"], rho);
    EXPECT_NEAR(r->value, rho, 2.5);
  }
  for (const auto& [blocks, pairs] : {std::pair{128, 51.6}, {256, 41.4}, {512, 38.4}, {1024, 38.5}}) {
    const Record* r = find(records, "pairs", {{"experiment", 3}, {"key_blocks", blocks}, {"mode", "strict"}});
    ASSERT_NE(r, nullptr) << blocks;
    EXPECT_EQ(r->params["published"], pairs);
    EXPECT_NEAR(r->value, pairs, 2.5);
  }
  const std::vector<nlohmann::json> experiments = {1, 2, 3, "fitted"};
  for (const char* mode : {"strict", "repair", "screen", "certify"})
    for (const nlohmann::json& experiment : experiments)
      EXPECT_NE(find(records, "recall", {{"experiment", experiment}, {"mode", mode}}), nullptr)
          << mode << experiment;
  for (const Record& r : records) EXPECT_TRUE(r.name != "closed_form_gap" || r.value < 1e-6) << r.params;
  EXPECT_NE(result->text.find("more than full routing"), std::string::npos);
}

TEST(Reproduce, EveryVariantExpectsAValueOnce) {
  for (const paper::Case& c : paper::routerelay_cases(/*quick=*/true))
    for (const paper::Variant& v : c.variants) {
      std::set<std::string> names;
      for (const paper::Expected& e : v.expected)
        EXPECT_TRUE(names.insert(e.name).second)
            << c.experiment << ' ' << name_of(v.relay.mode) << ' ' << e.name;
    }
}

}  // namespace
}  // namespace routerelay
