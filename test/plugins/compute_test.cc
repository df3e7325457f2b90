// SPDX-License-Identifier: Apache-2.0
// One back end of a host under a sparse preset: what its calls share, and where a prompt ends. The report tells.
#include "compute.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "attention_node.h"
#include "fake_ggml.h"
#include "mode.h"
#include "tally.h"
#include "trace/files.h"

namespace routerelay::ggml {
namespace {

using nlohmann::json;

// Every test has layers of its own: the tally is the process's.
class Compute : public testing::Test {
 protected:
  static constexpr int64_t kKeys = 1024, kQHeads = 4;

  void SetUp() override {
    ASSERT_TRUE(mode().set("balanced", "dense_below=64;selection.least=2;relay.wide=2").ok());
    plugin_.host = find_host(fake_code(), false).value();
    tally().begin({"cpu", "", kFakeVersion, kFakeApi}, path_);
    instance_.set_threads(2);
  }
  // `hidden` keys before the prompt are another's.
  void run(int layer, int64_t rows, int64_t position, int64_t hidden = 0) {
    run(instance_, layer, rows, position, hidden);
  }
  static void run(Instance& instance, int layer, int64_t rows, int64_t position, int64_t hidden = 0) {
    AttentionNode a({.rows = rows, .keys = kKeys, .cells = kKeys, .position = position, .layer = layer});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t key = 0; key < hidden; ++key) a.mask_at(row, key) = kHalfMinusInf;
    Graph graph{{&a.node}};
    ASSERT_EQ(instance.graph_compute(&graph), kStatusSuccess);
  }
  json report(int layer) const {
    tally().flush(false);
    const json all = json::parse(support::read_bytes(path_));
    for (const json& one : all["layers"])
      if (one["layer"] == layer) return one;
    ADD_FAILURE() << "no layer " << layer;
    return {};
  }

  support::TempFolder folder_;
  std::string path_ = folder_.file("report.json");
  Plugin plugin_;
  TraceSink trace_;
  Instance instance_{plugin_, trace_};
};

TEST_F(Compute, LayersOfAMicroBatchRelayToEachOther) {
  for (int layer = 10; layer < 13; ++layer) run(layer, 64, 960);
  EXPECT_EQ(report(10)["relayed"], false);
  EXPECT_EQ(report(11)["relayed"], true);
  EXPECT_EQ(report(12)["relayed"], true);
  for (int layer = 10; layer < 13; ++layer) EXPECT_EQ(report(layer)["routed_rows"], kQHeads);
}

TEST_F(Compute, TheNextMicroBatchBeginsAnew) {
  for (const int64_t position : {896, 960})
    for (const int layer : {20, 21}) run(layer, 64, position);
  EXPECT_EQ(report(20)["relayed"], false);
  EXPECT_EQ(report(21)["relayed"], true);
}

TEST_F(Compute, LayersThatNobodyNamesAreRoutedAndRelayNothing) {
  for (int i = 0; i < 3; ++i) run(-1, 64, 960);
  EXPECT_EQ(report(-1)["relayed"], false);
  EXPECT_EQ(report(-1)["routed_rows"], 3 * kQHeads);
}

TEST_F(Compute, ANamedLayerRelaysNothingFromOneThatNobodyNames) {
  for (const int layer : {80, -1, 81}) run(layer, 64, 960);
  EXPECT_EQ(report(81)["relayed"], false);
}

TEST_F(Compute, AShorterMicroBatchIsThePromptsEndAndDense) {
  run(30, 128, 768);
  run(30, 64, 896);
  EXPECT_EQ(report(30)["rows"], 3 * kQHeads);
  EXPECT_EQ(report(30)["routed_rows"], 2 * kQHeads);
}

TEST_F(Compute, APromptBehindAnotherIsRoutedToo) {
  run(40, 64, 960, 100);
  EXPECT_EQ(report(40)["routed_rows"], kQHeads);
  run(41, 64, 960, 100);
  EXPECT_EQ(report(41)["relayed"], true);
}

TEST_F(Compute, TheVariableCountsWhereTheHostNamesNoThreads) {
  plugin_.env.threads = 3;
  Instance silent(plugin_, trace_);
  run(silent, 50, 64, 960);
  tally().flush(false);
  EXPECT_EQ(json::parse(support::read_bytes(path_))["threads"], 3);
}

TEST_F(Compute, AMicroBatchKeepsThePresetThatItBeganWith) {
  run(70, 64, 896);
  ASSERT_TRUE(mode().set("exact", "").ok());
  run(71, 64, 896);
  EXPECT_EQ(report(71)["routed_rows"], kQHeads);
  run(70, 64, 960);
  EXPECT_EQ(report(70)["routed_rows"], kQHeads) << "the first call's alone";
}

TEST_F(Compute, ThePresetMayChangeWhileAnotherThreadComputes) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    for (int i = 0; !done; ++i) EXPECT_TRUE(mode().set(i % 2 == 0 ? "exact" : "balanced", "").ok());
  });
  for (int64_t position = 512; position < 960; position += 64) run(72, 64, position);
  done = true;
  other.join();
}

TEST_F(Compute, ATraceIsOfOneBackEnd) {
  const std::string path = folder_.file("one.trace");
  trace_.begin(path, {});
  {
    Instance other(plugin_, trace_);
    run(60, 64, 832);
    run(other, 60, 64, 100);  // another prompt, in another context
    trace_.finish(&other);
  }
  run(60, 64, 896);
  trace_.finish(&instance_);
  const Result<Trace> trace = Trace::open(path);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_NE(trace.value().find(60), nullptr);
  EXPECT_EQ(trace.value().find(60)->q.tokens, 128);
}

}  // namespace
}  // namespace routerelay::ggml
