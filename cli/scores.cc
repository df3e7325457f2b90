// SPDX-License-Identifier: Apache-2.0
#include "cli/scores.h"

#include <fmt/format.h>

#include <cmath>

namespace routerelay::cli {

void add_score(const Score& s, const nlohmann::json& params, std::vector<Record>& records) {
  const auto add = [&](const char* name, double value, const char* unit) {
    if (std::isfinite(value)) records.push_back({name, value, unit, params});
  };
  const auto time = [&](const char* stage, double elapsed_us) {
    records.push_back({"time", elapsed_us / 1e3, "ms", params});
    records.back().params["stage"] = stage;
  };
  add("speedup", s.speedup(), "x");
  add("density", s.density, "");
  add("layer_density", s.visited_share, "");
  add("speedup_bar", speedup_bar(s.visited_share), "x");
  add("mass", s.mass, "");
  add("id_recall", s.id_recall, "");
  add("error_rms", s.error_rms, "");
  add("error_max", s.error_max, "");
  add("scored_share", s.scored_share, "");
  add("screened_share", s.screened_share, "");
  add("kept_share", s.kept_share, "");
  time("dense", s.dense_us);
  time("layer", s.layer_us);
  time("summarize", s.summarize_us);
  time("relay", s.relay_us);
  time("route", s.route_us);
  time("attend", s.attend_us);
  add("summary_share", s.summary_share, "of 16-bit K and V");
  add("workspace", s.workspace_bytes, "bytes");
}

double speedup_bar(double layer_density) {
  return 0.9 / (layer_density / 0.85 + 0.06);
}

std::string describe(const std::string& path, const Trace& trace) {
  const TraceLayer& l = trace.layers().front();
  return fmt::format("{}: {}layers {}, q [{}, {}, {}] from position {}, k [{}, {}, {}] {}", path,
                     trace.info().model.empty() ? "" : trace.info().model + ", ", trace.layers().size(),
                     l.q.tokens, l.q.heads, l.q.head_dim, trace.info().q_offset, l.k.tokens, l.k.heads,
                     l.k.head_dim, dtype_name(l.k.dtype));
}

nlohmann::json trace_params(const Trace& trace) {
  const TraceLayer& l = trace.layers().front();
  return {{"model", trace.info().model},   {"queries", l.q.tokens}, {"keys", l.k.tokens},
          {"q_heads", l.q.heads},          {"kv_heads", l.k.heads}, {"head_dim", l.k.head_dim},
          {"dtype", dtype_name(l.k.dtype)}};
}

}  // namespace routerelay::cli
