// SPDX-License-Identifier: Apache-2.0
// The plug-in's report: what is counted, when its file is written, and the line at the process's end.
#include "tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "trace/files.h"

namespace routerelay::ggml {
namespace {

using nlohmann::json;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

LayerReport layer(int index, int64_t routed_visited = 0) {
  LayerReport r;
  r.layer = index;
  r.dense = routed_visited == 0;
  r.visible_blocks = 1000;
  r.visited_blocks = routed_visited == 0 ? 1000 : 500 + routed_visited;
  r.routed_rows = routed_visited == 0 ? 0 : 5;
  r.routed_visible_blocks = routed_visited == 0 ? 0 : 500;
  r.routed_visited_blocks = routed_visited;
  return r;
}

class TallyFile : public testing::Test {
 protected:
  void SetUp() override {
    tally.begin({"cpu", "avx2", "0.26.0", 3}, path);
    tally.goes_by("balanced");
  }
  void take(int index, const char* preset = "balanced") { tally.taken(preset, layer(index), 512, 2, 0.25); }
  json written() { return json::parse(support::read_bytes(path)); }

  support::TempFolder folder;
  std::string path = folder.file("report.json");
  Tally tally;
};

TEST_F(TallyFile, ShowsThePromptWhileItRuns) {
  take(0);
  EXPECT_EQ(written()["calls"], 1);
  take(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  take(2);
  EXPECT_EQ(written()["calls"], 3) << "the last layer of a micro-batch";
  take(0);
  tally.flush(false);
  EXPECT_EQ(written()["calls"], 4);
}

TEST_F(TallyFile, QuestionsAreNoWork) {
  for (int i = 0; i < 5; ++i) tally.asked(Reason::kFewRows);
  for (int i = 0; i < 7; ++i) tally.asked(Reason::kNone);
  tally.flush(false);
  const json report = written();
  EXPECT_EQ(report["calls"], 0);
  EXPECT_EQ(report["asked"], json::parse(R"({"claimed": 7, "declined": {"few_rows": 5}})"));
  EXPECT_EQ(report["delegated"], json::object());
}

TEST_F(TallyFile, NamesThePresetsThatCallsWentBy) {
  EXPECT_EQ(json::parse(tally.json())["preset"], "balanced") << "no call yet: as of now";
  for (const char* preset : {"fast", "exact", "fast", "exact"}) take(0, preset);
  EXPECT_EQ(json::parse(tally.json())["preset"], "fast, exact");
  for (int i = 0; i < 1000; ++i) take(0, ("fast relay.wide=" + std::to_string(i)).c_str());
  EXPECT_LT(json::parse(tally.json())["preset"].get<std::string>().size(), 3000U);
}

TEST_F(TallyFile, SaysWhatTheNextMicroBatchGoesBy) {
  take(0, "fast");
  tally.goes_by("careful relay.wide=4");
  const json report = json::parse(tally.json());
  EXPECT_EQ(report["preset"], "fast");
  EXPECT_EQ(report["now"], "careful relay.wide=4");
}

TEST_F(TallyFile, DelegatedCallsAreWrittenToo) {
  tally.delegated(Reason::kMaskValues, "");
  EXPECT_EQ(written()["delegated"], json::parse(R"({"mask_values": 1})"));
}

TEST_F(TallyFile, TheFirstDelegatedCallHasItsMessageInTheFile) {
  CaptureStderr();
  tally.delegated(Reason::kEngine, "no memory");
  EXPECT_EQ(GetCapturedStderr(), "routerelay: delegated to the host: no memory\n");
  EXPECT_EQ(written()["engine_message"], "no memory");
}

TEST_F(TallyFile, AFailureIsSaidOnceAndTriedAgain) {
  const std::string late = folder.file("late");
  tally.begin({"cpu", "avx2", "0.26.0", 3}, late + "/report.json");
  CaptureStderr();
  take(0);
  tally.flush(false);
  EXPECT_EQ(GetCapturedStderr(), "routerelay: ROUTERELAY_REPORT is '" + late +
                                     "/report.json', which cannot be written; tried again until the end\n");
  std::filesystem::create_directory(late);
  tally.flush(true);
  EXPECT_EQ(json::parse(support::read_bytes(late + "/report.json"))["calls"], 1);
}

// Each has its own lock, as two processes have.
TEST_F(TallyFile, TwoWritersOfOneFileLeaveItWhole) {
  Tally other;
  other.begin({"cpu", "avx2", "0.26.0", 3}, path);
  for (int i = 0; i < 30; ++i) other.taken("fast", layer(i), 512, 2, 0.25);
  tally.flush(false);
  CaptureStderr();
  const auto write_often = [](Tally& one) {
    for (int i = 0; i < 200; ++i) one.flush(false);
  };
  std::thread first(write_often, std::ref(tally)), second(write_often, std::ref(other));
  for (int i = 0; i < 200; ++i)
    EXPECT_FALSE(json::parse(support::read_bytes(path), nullptr, false).is_discarded());
  first.join();
  second.join();
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST_F(TallyFile, WhatManyThreadsCountIsInTheLastWrite) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this, i] {
      for (int n = 0; n < 100; ++n) {
        take(i);
        tally.flush(false);
      }
    });
  for (std::thread& thread : threads) thread.join();
  tally.flush(true);
  EXPECT_EQ(written()["calls"], 400);
}

class TallyLine : public testing::Test {
 protected:
  void SetUp() override { tally.begin({"cpu", "avx2", "0.26.0", 3}, "1"); }
  std::string line() {
    CaptureStderr();
    tally.flush(false);
    tally.flush(true);
    return GetCapturedStderr();
  }
  Tally tally;
};

TEST_F(TallyLine, HasBothDensitiesAndWhatWasDeclined) {
  tally.asked(Reason::kNone);
  tally.asked(Reason::kFewRows);
  tally.asked(Reason::kFewKeys);
  tally.taken("balanced", layer(0), 512, 2, 0.25);
  tally.taken("balanced", layer(1, 100), 512, 2, 0.25);
  EXPECT_EQ(line(),
            "routerelay: 2 attention calls taken in 0.50 s, density 0.800 of all rows, 0.200 of routed rows; "
            "delegated: none; declined of 3 questions: few_keys 1, few_rows 1\n");
}

TEST_F(TallyLine, NamesNoDensityOfNothing) {
  EXPECT_EQ(line(), "routerelay: 0 attention calls taken; delegated: none; declined of 0 questions: none\n");
  tally.taken("balanced", layer(0), 512, 2, 0.25);
  EXPECT_THAT(line(), testing::HasSubstr("density 1.000 of all rows, no row routed;"));
}

// A plug-in that was loaded for nothing says so, unless prompts were merely short.
TEST(TallyIdle, IsSaidAtTheEnd) {
  Tally tally;
  tally.begin({"cpu", "avx2", "0.26.0", 3}, "");
  const auto said = [&](bool at_exit) {
    CaptureStderr();
    tally.flush(at_exit);
    return GetCapturedStderr();
  };
  EXPECT_EQ(said(true), "") << "no context was made";
  tally.serves();
  EXPECT_EQ(said(false), "");
  EXPECT_EQ(said(true),
            "routerelay: idle: the host asked for no attention: flash attention is off, or a GPU does it\n");
  tally.asked(Reason::kFewRows);
  EXPECT_EQ(said(true), "");
  tally.asked(Reason::kTypes);
  EXPECT_EQ(said(true), "routerelay: idle: declined of 2 questions: few_rows 1, types 1\n");
  tally.asked(Reason::kNone);
  EXPECT_EQ(said(true), "");
}

}  // namespace
}  // namespace routerelay::ggml
