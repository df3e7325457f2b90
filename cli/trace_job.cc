// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_job.h"

#include <utility>

#include "cli/engine_flags.h"

namespace routerelay::cli {

void add_trace_flags(CLI::App& command, TraceArgs& args) {
  command.add_option("TRACE", args.path, "A trace (docs/trace.md)")->required();
  command.add_option("--layers", args.layers, "0,7,12; every traced layer when not given")->delimiter(',');
  command.add_option("--repeat", args.repeat, "Timed repetitions; the fastest counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--audit", args.audit, "Every so many rows are held against full attention; 0: none")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  add_engine_flags(command, args.engine);
}

Result<ReplayedTrace> replay_trace(const TraceArgs& args, std::vector<Options> contestants, Shell& shell) {
  Result<Trace> trace = Trace::open(args.path);
  if (!trace.ok()) return trace.status();
  Result<std::vector<int>> layers = choose_layers(trace.value(), args.layers);
  if (!layers.ok()) return layers.status();
  Result<Engine> engine = make_engine(args.engine);
  if (!engine.ok()) return engine.status();
  Result<Replay> result = replay(engine.value(), {.trace = trace.value(),
                                                  .layers = layers.value(),
                                                  .contestants = std::move(contestants),
                                                  .chunk = args.chunk,
                                                  .repeat = args.repeat,
                                                  .audit_every = args.audit,
                                                  .progress = shell.progress.callback()});
  if (!result.ok()) return result.status();
  return ReplayedTrace{std::move(trace).value(), std::move(layers).value(), std::move(engine).value(),
                       std::move(result).value()};
}

}  // namespace routerelay::cli
