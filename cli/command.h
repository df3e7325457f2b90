// SPDX-License-Identifier: Apache-2.0
// A command turns its arguments into an Answer: records for scripts, a text for people. main.cc alone prints.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "bench/workload/workload.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "routerelay/status.hpp"

namespace routerelay::cli {

struct Answer {
  std::vector<Record> records;
  std::string text;                 // tables, ends with a newline
  std::vector<std::string> missed;  // what did not hold; exit code 1 unless empty
  std::string isa;                  // that did the work; empty: the engine's choice
  int threads = 0;                  // 0: the engine's choice
};

// What the terminal allows.
struct Shell {
  Style style;
  Progress& progress;
};

using Job = std::function<Result<Answer>(Shell&)>;

// Each adds its command with its options to `app`; parsing it sets `job`. Legal names are checked while
// parsing, so that they are usage errors (exit code 2); files and machines fail when the job runs (1).
void add_info(CLI::App& app, Job& job);
void add_run(CLI::App& app, Job& job);
void add_compare(CLI::App& app, Job& job);
void add_explain(CLI::App& app, Job& job);
void add_bench(CLI::App& app, Job& job);
void add_reproduce(CLI::App& app, Job& job);

// A CLI11 check out of any function that gives a Status or a Result for a text.
template <class Fn>
CLI::Validator legal(Fn parse) {
  return {[parse](std::string& text) {
            const auto parsed = parse(text);
            if constexpr (requires { parsed.status(); })
              return parsed.ok() ? std::string() : parsed.status().message();
            else
              return parsed.ok() ? std::string() : parsed.message();
          },
          ""};
}

// Inside a parse callback: the value, or a usage error in the status' words.
template <class T>
T or_usage(Result<T> result) {
  if (!result.ok()) throw CLI::ValidationError(result.status().message());
  return std::move(result).value();
}

}  // namespace routerelay::cli
