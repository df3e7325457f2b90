// SPDX-License-Identifier: Apache-2.0
// One measured fact, and the benchmarks that make them. cli/bench.cc prints; nothing here does.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "routerelay/status.hpp"

namespace routerelay {

// A flat row of `--json`'s results: {"name", "value", "unit", "params": {...}}.
struct Record {
  std::string name;
  double value = 0;
  std::string unit;
  nlohmann::json params = nlohmann::json::object();
};

struct BenchArgs {
  std::vector<std::string> isas;     // empty: every one this machine has
  std::vector<std::string> dtypes;   // empty: f32, bf16, f16, q8_0
  std::vector<int64_t> head_dims;    // empty: 64, 128
  std::vector<int64_t> keys;         // empty: the workload's own list
  std::vector<double> densities;     // empty: the workload's own list
  std::vector<std::string> presets;  // layer: empty: balanced
  std::vector<std::string> sets;     // layer: key=value, over every preset
  std::vector<std::string> cases;    // cuda-attend: of cuda_cases(); empty: all but the largest
  int q_heads = 4;
  int kv_heads = 2;
  int threads = 0;     // 0: all cores
  double seconds = 1;  // measured per case, after a warm-up
  // May be empty.
  std::function<void(const std::string& what, double done)> progress;
};

// gflops: isa, dtype, threads
Result<std::vector<Record>> bench_peak(const BenchArgs& args);
// gflops: isa, dtype, head_dim, keys, density
Result<std::vector<Record>> bench_attend(const BenchArgs& args);
// share_of_dense: stage, preset, layer_kind
Result<std::vector<Record>> bench_layer(const BenchArgs& args);
// tflops: case, block, keys, heads, kv_heads, head_dim, density, page, causal, ms. In builds without the CUDA back end
// it is refused.
Result<std::vector<Record>> bench_cuda_attend(const BenchArgs& args);

}  // namespace routerelay
