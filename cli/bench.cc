// SPDX-License-Identifier: Apache-2.0
// routerelay bench: shapes of our choice against our own dense and against what the machine can do at most.
#include <fmt/format.h>

#include <memory>

#include "bench/cuda/cases.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "routerelay/engine.hpp"
#include "routerelay/options.hpp"

namespace routerelay::cli {
namespace {

using Bench = Result<std::vector<Record>> (*)(const BenchArgs&);
const std::map<std::string, Bench> kBenches = {{"peak", bench_peak},
                                               {"attend", bench_attend},
                                               {"layer", bench_layer},
                                               {"cuda-attend", bench_cuda_attend}};

std::vector<std::string> cuda_case_names() {
  std::vector<std::string> names;
  for (const bench::CudaCase& c : bench::cuda_cases()) names.emplace_back(c.name);
  return names;
}

std::string cell(const nlohmann::json& params, const std::string& key) {
  const auto it = params.find(key);
  if (it == params.end()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

// One table per name: a column for every parameter that any of its records has.
std::string tables(const std::vector<Record>& records, const Style& style) {
  std::vector<std::string> names;
  for (const Record& r : records)
    if (std::find(names.begin(), names.end(), r.name) == names.end()) names.push_back(r.name);
  std::string text;
  for (const std::string& name : names) {
    std::vector<std::string> keys;
    std::string unit;
    for (const Record& r : records) {
      if (r.name != name) continue;
      unit = r.unit;
      for (const auto& [key, _] : r.params.items())
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
    std::vector<std::string> header = keys;
    header.push_back(unit.empty() ? name : fmt::format("{} ({})", name, unit));
    Table table(header);
    for (const Record& r : records) {
      if (r.name != name) continue;
      std::vector<std::string> row;
      for (const std::string& key : keys) row.push_back(cell(r.params, key));
      row.push_back(fmt::format("{:.4g}", r.value));
      table.add(std::move(row));
    }
    text += (text.empty() ? "" : "\n") + table.text(style);
  }
  return text;
}

Result<Answer> bench(const std::string& what, BenchArgs args, Shell& shell) {
  args.progress = shell.progress.callback();
  Result<std::vector<Record>> records = kBenches.at(what)(args);
  if (!records.ok()) return records.status();
  Answer a;
  a.records = std::move(records).value();
  a.threads = args.threads;
  a.text = tables(a.records, shell.style);
  return a;
}

}  // namespace

void add_bench(CLI::App& app, Job& job) {
  struct Args {
    std::string what;
    BenchArgs bench;
  };
  auto args = std::make_shared<Args>();
  BenchArgs& b = args->bench;
  CLI::App* command = app.add_subcommand("bench", "Speed of kernels and layers on this machine");
  command
      ->add_option(
          "WHAT", args->what,
          "peak: arithmetic at its best; attend: the kernel; layer: routing's share; cuda-attend: the "
          "GPU's kernel alone, in a build that has it (./dev bench cuda-attend: beside other kernels)")
      ->required()
      ->check(CLI::IsMember(kBenches));
  command->add_option("--isa", b.isas, "avx2,avx512: those; every available one when not given")
      ->delimiter(',')
      ->check(legal(isa_from));
  command
      ->add_option("--dtype", b.dtypes,
                   "Of keys and values: f32, bf16, f16, not for layer q8_0; all when not given")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "bf16", "f16", "q8_0"}));
  command->add_option("--head-dim", b.head_dims, "64,128 when not given")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_option("--keys", b.keys, "Lengths")->delimiter(',')->check(CLI::Range(1, 1 << 24));
  command->add_option("--density", b.densities, "attend: shares of the blocks")
      ->delimiter(',')
      ->check(CLI::Range(0., 1.));
  command->add_option("--preset", b.presets, "layer: ROUTERELAY_PRESET, else balanced, when not given")
      ->delimiter(',')
      ->check(legal(Options::from_preset));
  command->add_option("--set", b.sets, "layer: KEY=VALUE on top of the presets, as router.samples=8");
  command->add_option("--case", b.cases, "cuda-attend: names; all but the one of 1M keys when not given")
      ->delimiter(',')
      ->check(CLI::IsMember(cuda_case_names()));
  command->add_option("--q-heads", b.q_heads, "")->capture_default_str()->check(CLI::Range(1, 1024));
  command->add_option("--kv-heads", b.kv_heads, "")->capture_default_str()->check(CLI::Range(1, 1024));
  command->add_option("--threads", b.threads, "All cores when not given")->check(CLI::Range(1, 4096));
  command->add_option("--seconds", b.seconds, "Measured per case")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 600.));
  command->callback([args, &job] {
    if (args->bench.q_heads % args->bench.kv_heads != 0)
      throw CLI::ValidationError("--kv-heads", fmt::format("{} does not divide --q-heads {}",
                                                           args->bench.kv_heads, args->bench.q_heads));
    if (args->what == "layer" && args->bench.presets.empty())
      args->bench.presets = {or_usage(options_of(default_preset(), {})).preset};
    job = [args](Shell& shell) { return bench(args->what, args->bench, shell); };
  });
}

}  // namespace routerelay::cli
