// SPDX-License-Identifier: Apache-2.0
// routerelay run: a trace's layers through one preset, dense beside it, layer by layer.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/scores.h"
#include "cli/trace_job.h"

namespace routerelay::cli {
namespace {

struct RunArgs {
  TraceArgs trace;
  std::string preset = default_preset();
  std::vector<std::string> sets;  // key=value
};

std::vector<std::string> cells(const std::string& layer, const std::string& kind, const Score& s) {
  return {layer,
          kind,
          percent(s.density),
          percent(s.visited_share),
          percent(s.mass),
          percent(s.id_recall),
          percent(s.scored_share),
          times(s.speedup()),
          decimals(s.dense_us / 1e3, 2),
          decimals(s.layer_us / 1e3, 2),
          decimals(s.summarize_us / 1e3, 2),
          decimals(s.relay_us / 1e3, 2),
          decimals(s.route_us / 1e3, 2),
          decimals(s.attend_us / 1e3, 2),
          scientific(s.error_rms),
          scientific(s.error_max)};
}

Answer answer_of(const RunArgs& args, const Options& options, const ReplayedTrace& done, const Style& style) {
  const auto& [trace, layers, engine, result] = done;
  const int64_t chunk = args.trace.chunk;
  Answer a;
  a.isa = name_of(engine.isa());
  a.threads = engine.threads();
  nlohmann::json params = trace_params(trace);
  params["preset"] = options.preset;
  params["backend"] = engine.backend();
  if (chunk > 0) params["chunk"] = chunk;
  Table table({"layer", "kind", "density", "of layer", "mass", "ids", "scored", "speedup", "dense ms",
               "layer ms", "summ.", "relay", "route", "attend", "err rms", "err max"});
  table.align_left(1);
  const auto scoped = [&](const char* scope, const Score& s) {
    params["scope"] = scope;
    add_score(s, params, a.records);
  };
  const Score routed = score(result, 0, Scope::kRouted), all = score(result, 0, Scope::kAll);
  if (routed.layers > 0) scoped("routed", routed);
  scoped("all", all);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerReport& report = result.runs[0][i].report;
    const Score s = score_layer(result, 0, i);
    params["layer"] = layers[i];
    params["layer_kind"] = kind_of(report);
    scoped("layer", s);
    table.add(cells(std::to_string(layers[i]), kind_of(report), s));
  }
  if (routed.layers > 0) table.add(cells("routed", fmt::format("{} layers", routed.layers), routed));
  table.add(cells("all", fmt::format("{} layers", all.layers), all));
  a.text = fmt::format(
      "{}\npreset {} on {} ({}, {} threads){}\n\n{}\n"
      "kind     dense, first (its rows are scored in full) or relayed (after the layer before it)\n"
      "{}of layer density, dense rows too\n"
      "layer ms summ. (summarize), relay, route and attend, in ms too, and what lies between them\n\n"
      "summaries {} of 16-bit K and V, workspace {}\n",
      describe(args.trace.path, trace), options.preset, engine.backend(), a.isa, a.threads,
      chunk > 0 ? fmt::format(", chunks of {}", chunk) : "", table.text(style), kLegend,
      percent(all.summary_share), bytes_text(all.workspace_bytes));
  if (routed.layers == 0 && !options.dense)
    a.text +=
        fmt::format("No layer was routed: the first {} layers and rows with fewer than {} keys are dense.\n",
                    options.dense_layers, options.dense_below);
  return a;
}

Result<Answer> run_trace(const RunArgs& args, const Options& options, Shell& shell) {
  const Result<ReplayedTrace> done = replay_trace(args.trace, {options}, shell);
  if (!done.ok()) return done.status();
  return answer_of(args, options, done.value(), shell.style);
}

}  // namespace

void add_run(CLI::App& app, Job& job) {
  auto args = std::make_shared<RunArgs>();
  CLI::App* command =
      app.add_subcommand("run", "A trace through a preset, against dense: density, mass, error, time");
  add_trace_flags(*command, args->trace);
  command->add_option("--preset", args->preset, kPresetHelp)
      ->capture_default_str()
      ->check(legal(Options::from_preset));
  command->add_option("--set", args->sets, "KEY=VALUE on top of the preset, as selection.floor=0.1")
      ->take_all();
  command
      ->add_option("--chunk", args->trace.chunk,
                   "Queries per pass, as in chunked prefill; the whole trace when 0")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->callback([args, &job] {
    job = [args, options = or_usage(options_of(args->preset, args->sets))](Shell& shell) {
      return run_trace(*args, options, shell);
    };
  });
}

}  // namespace routerelay::cli
