// SPDX-License-Identifier: Apache-2.0
// Environment variables: defaults, legal values, and the sentence that each illegal one gives.
#include "core/env.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace routerelay {
namespace {

Result<Env> read(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> lines = {"PATH=/bin"};
  for (const auto& [name, value] : variables) lines.push_back(name + "=" + value);
  std::vector<const char*> environment;
  for (const std::string& line : lines) environment.push_back(line.c_str());
  environment.push_back(nullptr);
  return read_env(environment.data());
}

TEST(Env, UnsetAndEmptyGiveTheDefaults) {
  for (const auto& e : {read({}), read({{"ROUTERELAY_PRESET", ""}, {"ROUTERELAY_MIN_KV", ""}})}) {
    ASSERT_TRUE(e.ok()) << e.status().message();
    EXPECT_EQ(e.value().preset, "");
    EXPECT_EQ(e.value().min_rows, 64);
    EXPECT_FALSE(e.value().min_kv.has_value());
    EXPECT_TRUE(e.value().trace_layers.empty());
    EXPECT_FALSE(e.value().allow_untested);
  }
}

TEST(Env, ReadsEveryVariable) {
  const auto e = read({{"ROUTERELAY_BACKEND", "reference"},
                       {"ROUTERELAY_ISA", "avx2"},
                       {"ROUTERELAY_PRESET", "balanced"},
                       {"ROUTERELAY_MIN_ROWS", "8"},
                       {"ROUTERELAY_MIN_KV", "0"},
                       {"ROUTERELAY_THREADS", "2"},
                       {"ROUTERELAY_REPORT", "out.json"},
                       {"ROUTERELAY_TRACE", "t.safetensors"},
                       {"ROUTERELAY_TRACE_LAYERS", "0,7,12"},
                       {"ROUTERELAY_ALLOW_UNTESTED", "1"}});
  ASSERT_TRUE(e.ok()) << e.status().message();
  EXPECT_EQ(e.value().backend, "reference");
  EXPECT_EQ(e.value().isa, "avx2");
  EXPECT_EQ(e.value().preset, "balanced");
  EXPECT_EQ(e.value().min_rows, 8);
  EXPECT_EQ(e.value().min_kv, 0);
  EXPECT_EQ(e.value().threads, 2);
  EXPECT_EQ(e.value().report, "out.json");
  EXPECT_EQ(e.value().trace, "t.safetensors");
  EXPECT_EQ(e.value().trace_layers, (std::vector<int>{0, 7, 12}));
  EXPECT_TRUE(e.value().allow_untested);
  EXPECT_EQ(read({{"ROUTERELAY_REPORT", "0"}}).value().report, "");
}

TEST(Env, IllegalValuesNameVariableValueAndWhatIsLegal) {
  const std::map<std::string, std::pair<std::string, std::string>> cases = {
      {"ROUTERELAY_BACKEND", {"gpu", "cpu, reference"}},
      {"ROUTERELAY_ISA", {"sse", "scalar, avx2, avx512, avx512bf16, amx"}},
      {"ROUTERELAY_PRESET", {"turbo", "exact, careful, balanced, fast; in a plug-in also off"}},
      {"ROUTERELAY_MIN_ROWS", {"-1", "an integer from 1 to 4294967296"}},
      {"ROUTERELAY_MIN_KV", {"many", "an integer from 0 to 4294967296"}},
      {"ROUTERELAY_THREADS", {"2x", "an integer from 0 to 4096"}},
      {"ROUTERELAY_TRACE_LAYERS", {"1,,2", "layer indices with commas between, such as 0,7,12"}},
      {"ROUTERELAY_ALLOW_UNTESTED", {"yes", "0, 1"}}};
  for (const auto& [name, wrong] : cases) {
    const auto e = read({{name, wrong.first}});
    ASSERT_FALSE(e.ok()) << name;
    EXPECT_EQ(e.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(e.status().message(),
              "environment: " + name + " is '" + wrong.first + "'; legal: " + wrong.second);
  }
}

TEST(Env, AnUnknownNameIsSaidAndStopsNoReading) {
  const auto e = read({{"ROUTERELAY_PREST", "fast"}, {"ROUTERELAY_ISA", "avx2"}, {"ROUTERELAY_ISAX", ""}});
  ASSERT_TRUE(e.ok());
  EXPECT_EQ(e.value().isa, "avx2");
  EXPECT_EQ(e.value().unknown.code(), Code::kInvalidArgument);
  EXPECT_EQ(
      e.value().unknown.message(),
      "environment: ROUTERELAY_ISAX is no variable; legal: ROUTERELAY_BACKEND, ROUTERELAY_ISA, "
      "ROUTERELAY_PRESET, ROUTERELAY_OPTIONS, ROUTERELAY_MIN_ROWS, ROUTERELAY_MIN_KV, ROUTERELAY_THREADS, "
      "ROUTERELAY_REPORT, ROUTERELAY_TRACE, ROUTERELAY_TRACE_LAYERS, ROUTERELAY_ALLOW_UNTESTED, "
      "ROUTERELAY_PLUGIN");
}

TEST(Env, KnowsWhatOthersRead) {
  const auto e = read({{"ROUTERELAY_PLUGIN", "x"},
                       {"ROUTERELAY_CACHE", "y"},
                       {"ROUTERELAY_TEST_HOSTS", "1"},
                       {"ROUTE", "z"}});
  ASSERT_TRUE(e.ok());
  EXPECT_TRUE(e.value().unknown.ok());
}

}  // namespace
}  // namespace routerelay
