// SPDX-License-Identifier: Apache-2.0
// Runs the command line and keeps what it said; and makes the traces that it is run on.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "routerelay/trace.hpp"
#include "trace/files.h"
#include "workload/structured.h"

namespace routerelay::support {

struct Outcome {
  int code = -1;
  std::string out, err;
};

// `arguments` and `environment` are words for a shell.
inline Outcome routerelay(const std::string& arguments, const std::string& environment = "") {
  TempFolder folder;
  const std::string out = folder.file("out"), err = folder.file("err");
  const std::string line =
      environment + " '" RR_CLI "' " + arguments + " >" + out + " 2>" + err + " </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(out), read_bytes(err)};
}

// Runs with --json and checks the one object's schema, exactly.
inline nlohmann::json json_of(const std::string& command, const std::string& arguments) {
  const Outcome o = routerelay(command + " " + arguments + " --json");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  const nlohmann::json j = nlohmann::json::parse(o.out, nullptr, false);
  EXPECT_FALSE(j.is_discarded()) << o.out;
  if (j.is_discarded()) return {};
  std::vector<std::string> keys;
  for (const auto& [key, _] : j.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"command", "machine", "results", "version"}));
  EXPECT_EQ(j["command"], command);
  EXPECT_EQ(j["version"], RR_VERSION);
  EXPECT_TRUE(j["machine"]["cpu"].is_string());
  EXPECT_TRUE(j["machine"]["isas"].is_array());
  EXPECT_TRUE(j["machine"]["isa"].is_string());
  EXPECT_TRUE(j["machine"]["threads"].is_number_integer());
  EXPECT_EQ(j["machine"].size(), 4u);
  EXPECT_FALSE(j["results"].empty());
  for (const nlohmann::json& r : j["results"]) {
    EXPECT_EQ(r.size(), 4u) << r;
    EXPECT_TRUE(r["name"].is_string()) << r;
    EXPECT_TRUE(r["value"].is_number()) << r;
    EXPECT_TRUE(r["unit"].is_string()) << r;
    EXPECT_TRUE(r["params"].is_object()) << r;
  }
  return j;
}

// The values of the records with this name and these parameters.
inline std::vector<double> values(const nlohmann::json& j, const std::string& name,
                                  const nlohmann::json& params) {
  std::vector<double> found;
  for (const nlohmann::json& r : j["results"]) {
    bool matches = r["name"] == name;
    for (const auto& [key, value] : params.items())
      matches = matches && r["params"].value(key, nlohmann::json()) == value;
    if (matches) found.push_back(r["value"]);
  }
  return found;
}

// Structured layers 1 (dense in every preset) to `last`.
inline void write_trace(const std::string& path, int64_t tokens, int last) {
  auto writer = TraceWriter::create(path, {.model = "structured"});
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (int layer = 1; layer <= last; ++layer) {
    const StructuredLayer data({tokens, 2, 1, 64, DType::kF16}, layer);
    const Status added = writer->add_layer(layer, data.q(), data.k(), data.v());
    ASSERT_TRUE(added.ok()) << added.message();
  }
  const Status done = writer->finish();
  ASSERT_TRUE(done.ok()) << done.message();
}

}  // namespace routerelay::support
