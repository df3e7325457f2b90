// SPDX-License-Identifier: Apache-2.0
// routerelay reproduce: a paper's tables beside ours, by name.
#include <memory>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/reproduce.h"

namespace routerelay::cli {
namespace {

using Reproduce = Result<Reproduction> (*)(const ReproduceArgs&);
const std::map<std::string, Reproduce> kPapers = {{"routerelay", reproduce_routerelay}};

Result<Answer> reproduce(const std::string& paper, ReproduceArgs args, Shell& shell) {
  args.progress = shell.progress.callback();
  args.abort = watch_interrupts();
  Result<Reproduction> result = kPapers.at(paper)(args);
  if (!result.ok()) return result.status();
  Answer a;
  a.records = std::move(result->records);
  a.text = std::move(result->text);
  a.missed = std::move(result->missed);
  a.threads = args.threads;
  return a;
}

}  // namespace

void add_reproduce(CLI::App& app, Job& job) {
  struct Args {
    std::string paper;
    ReproduceArgs reproduce;
  };
  auto args = std::make_shared<Args>();
  CLI::App* command = app.add_subcommand("reproduce", "A paper's published tables beside ours");
  command->add_option("PAPER", args->paper, "routerelay (arXiv 2609.07306)")
      ->required()
      ->check(CLI::IsMember(kPapers));
  command->add_flag("--quick", args->reproduce.quick, "Fewer repetitions");
  command->add_option("--threads", args->reproduce.threads, "All cores when not given")
      ->check(CLI::Range(1, 4096));
  command->callback([args, &job] {
    job = [args](Shell& shell) { return reproduce(args->paper, args->reproduce, shell); };
  });
}

}  // namespace routerelay::cli
