// SPDX-License-Identifier: Apache-2.0
// A trace's layers, in order, through one Pass per contestant and a dense one beside them, in the same process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "routerelay/engine.hpp"
#include "routerelay/trace.hpp"

namespace routerelay::cli {

struct ReplayArgs {
  const Trace& trace;
  std::vector<int> layers;           // ascending, all in the trace
  std::vector<Options> contestants;  // audit_every is set by the replay
  int64_t chunk = 0;                 // queries a pass takes; 0: all
  int repeat = 3;                    // timed repetitions, after one that is audited and compared
  int audit_every = 8;               // 0: no mass, no id recall
  std::function<void(const std::string&, double)> progress;
};

// One contestant on one layer, over all chunks.
struct LayerRun {
  LayerReport report;   // times are those of the fastest repetition, audit figures those of the audited one
  double layer_us = 0;  // wall clock of the whole layer, fastest repetition
  // Against the dense output, relative to its length: over the whole layer, and of the worst (query, head).
  double error_squares = 0;
  double dense_squares = 0;
  double error_max = 0;
};

struct Replay {
  std::vector<double> dense_us;             // [layer] wall clock of the dense layer, fastest repetition
  std::vector<std::vector<LayerRun>> runs;  // [contestant][layer]
};

Result<Replay> replay(Engine& engine, const ReplayArgs& args);

// What a contestant's layers add up to.
struct Score {
  int layers = 0;
  double dense_us = 0, layer_us = 0;
  double summarize_us = 0, relay_us = 0, route_us = 0, attend_us = 0;
  double density = 1;        // visited / visible pairs of these layers' routed rows
  double visited_share = 1;  // the same over all of their rows
  double scored_share = 0, screened_share = 0, kept_share = 0;
  double mass, id_recall;  // NaN without audit
  double error_rms = 0, error_max = 0;
  double summary_share = 0;    // bytes of 16-bit K and V, the worst layer
  double workspace_bytes = 0;  // the worst layer
  double speedup() const { return dense_us / layer_us; }
};
enum class Scope : uint8_t { kRouted, kAll };
Score score(const Replay& replay, size_t contestant, Scope scope);
Score score_layer(const Replay& replay, size_t contestant, size_t layer);

// dense, first (scored in full) or relayed.
const char* kind_of(const LayerReport& report);

// The layers a user asked for (empty: all of the trace), ascending; kInvalidArgument names one that it lacks.
Result<std::vector<int>> choose_layers(const Trace& trace, std::vector<int> wanted);

}  // namespace routerelay::cli
