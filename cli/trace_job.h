// SPDX-License-Identifier: Apache-2.0
// What the commands that replay a trace share: their options, and the way from a file's name to figures.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/replay.h"

namespace routerelay::cli {

struct TraceArgs {
  std::string path;
  std::vector<int> layers;  // empty: all of the trace
  EngineOptions engine;
  int64_t chunk = 0;
  int repeat = 3;
  int audit = 8;
};

// TRACE, --layers, --repeat, --audit and the engine's. The values in `args` are the defaults that help shows.
void add_trace_flags(CLI::App& command, TraceArgs& args);

struct ReplayedTrace {
  Trace trace;
  std::vector<int> layers;  // that were replayed
  Engine engine;
  Replay replay;
};

// Opens the trace, makes the engine, and runs every contestant over the chosen layers.
Result<ReplayedTrace> replay_trace(const TraceArgs& args, std::vector<Options> contestants, Shell& shell);

}  // namespace routerelay::cli
