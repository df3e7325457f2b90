// SPDX-License-Identifier: Apache-2.0
// The command line: parses, runs one command, prints its answer. Exit code 0; 1 when work failed; 2 for usage.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/command.h"
#include "cli/machine.h"
#include "core/env.h"

namespace routerelay::cli {
namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

int complain(int code, const std::string& message) {
  fmt::print(stderr, "routerelay: {}\n", message);
  return code;
}

std::string json_text(const std::string& command, const Answer& answer) {
  nlohmann::json results = nlohmann::json::array();
  for (const Record& r : answer.records)
    results.push_back({{"name", r.name}, {"value", r.value}, {"unit", r.unit}, {"params", r.params}});
  const nlohmann::json all = {{"command", command},
                              {"version", RR_VERSION},
                              {"machine", machine(answer.isa, answer.threads)},
                              {"results", results}};
  // File names and models in params may hold any bytes.
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Everything at once and only when the work is done, so that a reader never sees half an object.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

// Before any work, and in commands that need no engine too.
Status check_environment() {
  return env().ok() ? env().value().unknown : env().status();
}

int perform(const std::string& command, const Job& job, bool json) {
  if (const Status status = check_environment(); !status.ok()) return complain(kFailed, status.message());
  Progress progress(::isatty(STDERR_FILENO) == 1);
  const char* no_color = std::getenv("NO_COLOR");
  Shell shell{{.bold = ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0')}, progress};
  const Result<Answer> answer = job(shell);
  progress.clear();
  if (!answer.ok())
    return complain(kFailed,
                    answer.status().code() == Code::kAborted ? "interrupted" : answer.status().message());
  const Answer& a = answer.value();
  if (!print(json ? json_text(command, a) : a.text))
    return complain(kFailed, "cannot write to standard output");
  for (const std::string& what : a.missed) complain(kFailed, what);
  return a.missed.empty() ? kDone : kFailed;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Block-sparse attention for long prompts: what it skips, what that costs, and how fast it is."};
  app.name("routerelay");
  app.set_version_flag("--version", RR_VERSION);
  app.require_subcommand(1);
  Job job;
  add_info(app, job);
  add_run(app, job);
  add_compare(app, job);
  add_explain(app, job);
  add_bench(app, job);
  add_reproduce(app, job);
  bool json = false;
  for (CLI::App* command : app.get_subcommands({}))
    command->add_flag("--json", json, "One JSON object, for scripts");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    if (chosen.empty() && argc > 1 && argv[1][0] != '-') {
      std::vector<std::string> legal;
      for (const CLI::App* command : app.get_subcommands({})) legal.push_back(command->get_name());
      return complain(kUsage, fmt::format("command is '{}'; legal: {}", argv[1], fmt::join(legal, ", ")));
    }
    return complain(kUsage, fmt::format("{}; see 'routerelay {}--help'", error.what(),
                                        chosen.empty() ? "" : chosen.front()->get_name() + " "));
  }
  return perform(app.get_subcommands().front()->get_name(), job, json);
}

}  // namespace
}  // namespace routerelay::cli

int main(int argc, char** argv) {
  try {
    return routerelay::cli::run(argc, argv);
  } catch (const std::exception& error) {
    return routerelay::cli::complain(routerelay::cli::kFailed, error.what());
  }
}
