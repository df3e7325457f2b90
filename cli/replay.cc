// SPDX-License-Identifier: Apache-2.0
#include "cli/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace routerelay::cli {
namespace {

// The queries [begin, end) of a layer, and the keys up to the last of them.
TraceLayer slice(const TraceLayer& whole, int64_t q_offset, int64_t begin, int64_t end) {
  TraceLayer part = whole;
  part.q.data = whole.q.at(begin, 0);
  part.q.tokens = end - begin;
  part.k.tokens = part.v.tokens = q_offset + end;
  return part;
}

void add(LayerReport& sum, const LayerReport& part) {
  sum.dense = sum.dense && part.dense;
  sum.relayed = sum.relayed || part.relayed;
  sum.auto_off = sum.auto_off || part.auto_off;
  for (auto field :
       {&LayerReport::rows, &LayerReport::routed_rows, &LayerReport::kept_rows, &LayerReport::visible_blocks,
        &LayerReport::visited_blocks, &LayerReport::routed_visible_blocks,
        &LayerReport::routed_visited_blocks, &LayerReport::scored_blocks, &LayerReport::screened_blocks,
        &LayerReport::swaps, &LayerReport::survivors, &LayerReport::audited_rows})
    sum.*field += part.*field;
  for (auto field :
       {&LayerReport::audited_id_recall, &LayerReport::audited_mass_recall, &LayerReport::summarize_us,
        &LayerReport::relay_us, &LayerReport::route_us, &LayerReport::attend_us})
    sum.*field += part.*field;
  for (auto field :
       {&LayerReport::summary_bytes, &LayerReport::workspace_bytes, &LayerReport::kv_bytes_16bit})
    sum.*field = std::max(sum.*field, part.*field);
  for (size_t i = 0; i < sum.rows_by_cause.size(); ++i) sum.rows_by_cause[i] += part.rows_by_cause[i];
}

void compare(const MutableTensor& got, const MutableTensor& dense, LayerRun& run) {
  for (int64_t token = 0; token < dense.tokens; ++token) {
    for (int64_t head = 0; head < dense.heads; ++head) {
      const auto* a = reinterpret_cast<const float*>(got.at(token, head));
      const auto* b = reinterpret_cast<const float*>(dense.at(token, head));
      double error = 0, length = 0;
      for (int64_t i = 0; i < dense.head_dim; ++i) {
        error += std::pow(static_cast<double>(a[i]) - b[i], 2);
        length += std::pow(static_cast<double>(b[i]), 2);
      }
      run.error_squares += error;
      run.dense_squares += length;
      if (length > 0) run.error_max = std::max(run.error_max, std::sqrt(error / length));
    }
  }
}

// What one repetition measures, before the fastest is kept.
struct Lap {
  std::vector<double> dense_us;
  std::vector<std::vector<LayerRun>> runs;
};

class Replayer {
 public:
  Replayer(Engine& engine, const ReplayArgs& args) : engine_(engine), args_(args) {}

  Result<Replay> run() {
    Replay best;
    for (int lap_idx = 0; lap_idx <= args_.repeat; ++lap_idx) {
      audited_ = lap_idx == 0;
      lap_idx_ = lap_idx;
      Lap lap{std::vector<double>(args_.layers.size(), 0), {}};
      LayerRun empty;
      empty.report.dense = true;
      lap.runs.assign(args_.contestants.size(), std::vector<LayerRun>(args_.layers.size(), empty));
      RR_TRY(run_lap(lap));
      if (audited_)
        best = {lap.dense_us, lap.runs};
      else
        keep_fastest(lap, best);
    }
    return best;
  }

 private:
  Status run_lap(Lap& lap) {
    const int64_t tokens = args_.trace.layers().front().q.tokens;
    const int64_t chunk = args_.chunk > 0 ? args_.chunk : std::max<int64_t>(tokens, 1);
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t end = std::min(begin + chunk, tokens);
      RR_TRY(run_chunk(begin, end, begin > 0 && end - begin < chunk, lap));
    }
    return {};
  }

  Status run_chunk(int64_t begin, int64_t end, bool short_tail, Lap& lap) {
    Result<Pass> dense = Pass::begin(engine_, Options::from_preset("exact").value());
    if (!dense.ok()) return dense.status();
    std::vector<Pass> passes;
    for (Options options : args_.contestants) {
      options.audit_every = audited_ && !options.dense ? args_.audit_every : 0;
      Result<Pass> pass = Pass::begin(engine_, options, {.final_chunk = short_tail});
      if (!pass.ok()) return pass.status();
      passes.push_back(std::move(pass).value());
    }
    for (size_t i = 0; i < args_.layers.size(); ++i) {
      tell(i, end);
      const TraceLayer layer =
          slice(*args_.trace.find(args_.layers[i]), args_.trace.info().q_offset, begin, end);
      RR_TRY(run_layer(layer, i, dense.value(), passes, lap));
    }
    return {};
  }

  // Every other lap starts with the contestants, so that neither side always finds the caches warm.
  Status run_layer(const TraceLayer& layer, size_t i, Pass& dense, std::vector<Pass>& passes, Lap& lap) {
    const bool dense_last = lap_idx_ % 2 == 1;
    if (!dense_last) RR_TRY(timed(dense, layer, dense_out_, lap.dense_us[i]));
    for (size_t c = 0; c < passes.size(); ++c) {
      LayerRun& run = lap.runs[c][i];
      RR_TRY(timed(passes[c], layer, out_, run.layer_us));
      add(run.report, passes[c].report().layers.back());
      if (audited_) compare(view(out_, layer.q), view(dense_out_, layer.q), run);
    }
    if (dense_last) RR_TRY(timed(dense, layer, dense_out_, lap.dense_us[i]));
    return {};
  }

  MutableTensor view(std::vector<float>& storage, const Tensor& q) {
    return contiguous(static_cast<void*>(storage.data()), DType::kF32, q.tokens, q.heads, q.head_dim);
  }

  Status timed(Pass& pass, const TraceLayer& layer, std::vector<float>& storage, double& elapsed_us) {
    const auto needed = static_cast<size_t>(layer.q.tokens * layer.q.heads * layer.q.head_dim);
    if (storage.size() < needed) storage.resize(needed);
    const LayerArgs call{.q = layer.q,
                         .k = layer.k,
                         .v = layer.v,
                         .out = view(storage, layer.q),
                         .scale = args_.trace.info().scale,
                         .layer = layer.layer};
    const auto start = std::chrono::steady_clock::now();
    RR_TRY(pass.layer(call));
    elapsed_us += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    return {};
  }

  void keep_fastest(const Lap& lap, Replay& best) const {
    const bool first = lap_idx_ == 1;  // the audited lap's times are not to be compared
    for (size_t i = 0; i < args_.layers.size(); ++i) {
      best.dense_us[i] = first ? lap.dense_us[i] : std::min(best.dense_us[i], lap.dense_us[i]);
      for (size_t c = 0; c < args_.contestants.size(); ++c) {
        const LayerRun& from = lap.runs[c][i];
        LayerRun& to = best.runs[c][i];
        if (!first && from.layer_us >= to.layer_us) continue;
        to.layer_us = from.layer_us;
        for (auto field : {&LayerReport::summarize_us, &LayerReport::relay_us, &LayerReport::route_us,
                           &LayerReport::attend_us})
          to.report.*field = from.report.*field;
      }
    }
  }

  void tell(size_t layer_idx, int64_t end) const {
    if (!args_.progress) return;
    const auto tokens = static_cast<double>(args_.trace.layers().front().q.tokens);
    const double of_lap = args_.chunk > 0
                              ? static_cast<double>(end) / tokens
                              : static_cast<double>(layer_idx) / static_cast<double>(args_.layers.size());
    args_.progress(fmt::format("layer {}, {}", args_.layers[layer_idx],
                               audited_ ? "audit" : fmt::format("repetition {}", lap_idx_)),
                   (lap_idx_ + of_lap) / (args_.repeat + 1));
  }

  Engine& engine_;
  const ReplayArgs& args_;
  bool audited_ = true;
  int lap_idx_ = 0;
  std::vector<float> out_, dense_out_;
};

double ratio(double a, double b, double none) {
  return b > 0 ? a / b : none;
}

Score add_up(const Replay& replay, const std::vector<LayerRun>& runs, const std::vector<size_t>& layers) {
  Score s;
  LayerReport sum;
  double error = 0, dense = 0;
  for (size_t i : layers) {
    const LayerRun& run = runs[i];
    add(sum, run.report);
    ++s.layers;
    s.dense_us += replay.dense_us[i];
    s.layer_us += run.layer_us;
    error += run.error_squares;
    dense += run.dense_squares;
    s.error_max = std::max(s.error_max, run.error_max);
    s.summary_share = std::max(s.summary_share, ratio(static_cast<double>(run.report.summary_bytes),
                                                      static_cast<double>(run.report.kv_bytes_16bit), 0));
  }
  const auto visible = static_cast<double>(sum.routed_visible_blocks),
             audited = static_cast<double>(sum.audited_rows);
  s.summarize_us = sum.summarize_us;
  s.relay_us = sum.relay_us;
  s.route_us = sum.route_us;
  s.attend_us = sum.attend_us;
  s.density = ratio(static_cast<double>(sum.routed_visited_blocks), visible, 1);
  s.visited_share =
      ratio(static_cast<double>(sum.visited_blocks), static_cast<double>(sum.visible_blocks), 1);
  s.scored_share = ratio(static_cast<double>(sum.scored_blocks), visible, 0);
  s.screened_share = ratio(static_cast<double>(sum.screened_blocks), visible, 0);
  s.kept_share = ratio(static_cast<double>(sum.kept_rows), static_cast<double>(sum.routed_rows), 0);
  s.mass = ratio(sum.audited_mass_recall, audited, std::nan(""));
  s.id_recall = ratio(sum.audited_id_recall, audited, std::nan(""));
  s.error_rms = std::sqrt(ratio(error, dense, 0));
  s.workspace_bytes = static_cast<double>(sum.workspace_bytes);
  return s;
}

}  // namespace

Result<Replay> replay(Engine& engine, const ReplayArgs& args) {
  return Replayer(engine, args).run();
}

Score score(const Replay& replay, size_t contestant, Scope scope) {
  const std::vector<LayerRun>& runs = replay.runs[contestant];
  std::vector<size_t> layers;
  for (size_t i = 0; i < runs.size(); ++i)
    if (scope == Scope::kAll || !runs[i].report.dense) layers.push_back(i);
  return add_up(replay, runs, layers);
}

Score score_layer(const Replay& replay, size_t contestant, size_t layer) {
  return add_up(replay, replay.runs[contestant], {layer});
}

const char* kind_of(const LayerReport& report) {
  return report.dense ? "dense" : report.relayed ? "relayed" : "first";
}

Result<std::vector<int>> choose_layers(const Trace& trace, std::vector<int> wanted) {
  std::vector<int> held;
  for (const TraceLayer& l : trace.layers()) held.push_back(l.layer);
  if (wanted.empty()) return held;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  for (int layer : wanted)
    if (!trace.find(layer))
      return Status(Code::kInvalidArgument,
                    fmt::format("layers: {} is not in the trace; it has {}", layer, fmt::join(held, ", ")));
  return wanted;
}

}  // namespace routerelay::cli
