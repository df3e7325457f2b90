// SPDX-License-Identifier: Apache-2.0
// bench layer: what summarize, relay and route cost beside the dense attend of the same structured data, all in
// turns in one process. The first routed layer scores everything, the relayed ones after it do not.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "routerelay/engine.hpp"
#include "workload/structured.h"
#include "workload/workload.h"

namespace routerelay {
namespace {

constexpr int kFirstLayer = 2;  // layers 0 and 1 are dense in every preset
constexpr int kRelayedLayers = 2;
constexpr int kLayers = 1 + kRelayedLayers;
constexpr int kLeastLaps = 2;  // the first of them also warms up

struct Case {
  std::string isa, dtype, preset;
  int64_t keys = 0;
  int64_t head_dim = 0;
};

// The fastest lap of one layer.
struct Best {
  double dense_us = 0, summarize_us = 0, relay_us = 0, route_us = 0, attend_us = 0;
  LayerReport report;
  double routing_us() const { return summarize_us + relay_us + route_us; }
};

DType dtype_of(const std::string& name) {
  return name == "f32" ? DType::kF32 : name == "bf16" ? DType::kBF16 : DType::kF16;
}

class LayerBench {
 public:
  LayerBench(const Case& c, const BenchArgs& args) : case_(c), args_(args) {
    const StructuredArgs data{c.keys, args.q_heads, args.kv_heads, c.head_dim, dtype_of(c.dtype)};
    for (int i = 0; i < kLayers; ++i)
      layers_.push_back(std::make_unique<StructuredLayer>(data, kFirstLayer + i));
    out_.resize(static_cast<size_t>(bytes_of(data.dtype, c.keys * args.q_heads * c.head_dim)));
  }

  Status run(Engine& engine, const Options& options) {
    const auto start = std::chrono::steady_clock::now();
    double elapsed_s = 0;
    for (int lap = 0; lap < kLeastLaps || elapsed_s < args_.seconds; ++lap) {
      RR_TRY(run_lap(engine, options, lap));
      elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (args_.progress)
        args_.progress(fmt::format("layer: {} {} {} keys", case_.isa, case_.preset, case_.keys),
                       std::min(1., elapsed_s / args_.seconds));
    }
    return {};
  }

  void record(const Engine& engine, std::vector<Record>& records) const {
    add(engine, "first", 0, 1, records);
    add(engine, "relayed", 1, kLayers, records);
  }

 private:
  Status run_lap(Engine& engine, const Options& options, int lap) {
    Result<Pass> dense = Pass::begin(engine, Options::from_preset("exact").value());
    if (!dense.ok()) return dense.status();
    Result<Pass> sparse = Pass::begin(engine, options);
    if (!sparse.ok()) return sparse.status();
    for (int i = 0; i < kLayers; ++i) {
      const StructuredLayer& data = *layers_[static_cast<size_t>(i)];
      const LayerArgs call{.q = data.q(),
                           .k = data.k(),
                           .v = data.v(),
                           .out = contiguous(static_cast<void*>(out_.data()), data.q().dtype, case_.keys,
                                             args_.q_heads, case_.head_dim),
                           .layer = kFirstLayer + i};
      RR_TRY(dense->layer(call));
      RR_TRY(sparse->layer(call));
      keep(best_[static_cast<size_t>(i)], dense->report().layers.back(), sparse->report().layers.back(),
           lap == 0);
    }
    return {};
  }

  static void keep(Best& best, const LayerReport& dense, const LayerReport& sparse, bool first) {
    best.dense_us = first ? dense.attend_us : std::min(best.dense_us, dense.attend_us);
    const double routing_us = sparse.summarize_us + sparse.relay_us + sparse.route_us;
    if (first || routing_us < best.routing_us()) {
      best.summarize_us = sparse.summarize_us;
      best.relay_us = sparse.relay_us;
      best.route_us = sparse.route_us;
    }
    best.attend_us = first ? sparse.attend_us : std::min(best.attend_us, sparse.attend_us);
    best.report = sparse;
  }

  // Sums over layers [begin, end): shares of one dense layer are the ratio of the sums.
  void add(const Engine& engine, const char* kind, size_t begin, size_t end,
           std::vector<Record>& records) const {
    Best sum;
    for (size_t i = begin; i < end; ++i) {
      const Best& b = best_[i];
      sum.dense_us += b.dense_us;
      sum.summarize_us += b.summarize_us;
      sum.relay_us += b.relay_us;
      sum.route_us += b.route_us;
      sum.attend_us += b.attend_us;
      sum.report.routed_visited_blocks += b.report.routed_visited_blocks;
      sum.report.routed_visible_blocks += b.report.routed_visible_blocks;
    }
    const nlohmann::json params = {
        {"preset", case_.preset},     {"layer_kind", kind},         {"keys", case_.keys},
        {"head_dim", case_.head_dim}, {"dtype", case_.dtype},       {"isa", name_of(engine.isa())},
        {"q_heads", args_.q_heads},   {"kv_heads", args_.kv_heads}, {"threads", engine.threads()}};
    const std::array<std::pair<const char*, double>, 4> stages = {{{"summarize", sum.summarize_us},
                                                                   {"relay", sum.relay_us},
                                                                   {"route", sum.route_us},
                                                                   {"total", sum.routing_us()}}};
    for (const auto& [stage, stage_us] : stages) {
      records.push_back({"share_of_dense", stage_us / sum.dense_us, "", params});
      records.back().params["stage"] = stage;
    }
    const auto visible = static_cast<double>(sum.report.routed_visible_blocks);
    records.push_back({"density",
                       visible > 0 ? static_cast<double>(sum.report.routed_visited_blocks) / visible : 1, "",
                       params});
    records.push_back({"speedup", sum.dense_us / (sum.routing_us() + sum.attend_us), "x", params});
    records.push_back({"dense_time", sum.dense_us / 1e3 / static_cast<double>(end - begin), "ms", params});
  }

  const Case& case_;
  const BenchArgs& args_;
  std::vector<std::unique_ptr<StructuredLayer>> layers_;
  std::vector<std::byte> out_;
  std::array<Best, kLayers> best_;
};

template <class T>
std::vector<T> or_default(const std::vector<T>& given, std::vector<T> otherwise) {
  return given.empty() ? std::move(otherwise) : given;
}

}  // namespace

// Without wishes: the best ISA, bf16 (where dense is fastest and routing weighs most), 32K keys, head_dim 128,
// balanced.
Result<std::vector<Record>> bench_layer(const BenchArgs& args) {
  if (std::find(args.dtypes.begin(), args.dtypes.end(), dtype_name(DType::kQ8_0)) != args.dtypes.end())
    return Status(Code::kInvalidArgument, "bench layer: dtype is 'q8_0'; legal: f32, bf16, f16");
  std::vector<Record> records;
  for (const std::string& isa : or_default<std::string>(args.isas, {""}))
    for (const std::string& dtype : or_default<std::string>(args.dtypes, {"bf16"}))
      for (int64_t head_dim : or_default<int64_t>(args.head_dims, {128}))
        for (int64_t keys : or_default<int64_t>(args.keys, {32768}))
          for (const std::string& preset : or_default<std::string>(args.presets, {"balanced"})) {
            Result<Engine> engine = Engine::create({.isa = isa, .threads = args.threads});
            if (!engine.ok()) return engine.status();
            Result<Options> options = Options::from_preset(preset);
            if (!options.ok()) return options.status();
            for (const std::string& pair : args.sets) RR_TRY(options->set_all(pair));
            RR_TRY(options->check());
            const Case c{isa, dtype, options->preset, keys, head_dim};
            LayerBench bench(c, args);
            RR_TRY(bench.run(engine.value(), options.value()));
            bench.record(engine.value(), records);
          }
  return records;
}

}  // namespace routerelay
