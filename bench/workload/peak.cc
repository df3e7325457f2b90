// SPDX-License-Identifier: Apache-2.0
// bench peak: what every ISA of this machine does at best, in GFLOP/s over all threads.
#include "workload/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/cpu_features.h"
#include "cpu/attend/plan.h"
#include "cpu/isa/peak.h"
#include "workload/workload.h"

namespace routerelay {
namespace bench {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double measure_peak_gflops(ThreadPool& pool, Isa isa, double seconds) {
  const cpu::PeakLoop loop = cpu::peak_loop(isa);
  constexpr int64_t kIterations = 20000;  // some 100 us: the clock costs nothing beside it
  const int threads = pool.threads();
  std::vector<double> gflops(static_cast<size_t>(threads), 0);
  std::atomic<int> waiting{threads};
  const auto called = std::chrono::steady_clock::now();
  // Each thread is timed for itself, once all have started. Should one never come, the others go on without it.
  const Status status = pool.run(threads, [&](int, int64_t i) {
    for (--waiting; waiting.load() > 0 && seconds_since(called) < 0.05;) std::this_thread::yield();
    loop(kIterations);
    const auto start = std::chrono::steady_clock::now();
    int64_t flops = 0;
    double elapsed = 0;
    do {
      flops += loop(kIterations);
      elapsed = seconds_since(start);
    } while (elapsed < seconds);
    gflops[static_cast<size_t>(i)] = static_cast<double>(flops) / elapsed * 1e-9;
  });
  if (!status.ok()) return 0;
  double total = 0;
  for (const double g : gflops) total += g;
  return total;
}

Result<std::vector<Isa>> isas_from(const std::vector<std::string>& names) {
  if (names.empty()) return available_isas();
  std::vector<Isa> isas;
  for (const std::string& name : names) {
    Result<Isa> isa = isa_from(name);
    if (!isa.ok()) return isa.status();
    if (!isa_available(isa.value()))
      return Status(Code::kUnsupported, fmt::format("bench: isa {} is absent on this machine", name));
    isas.push_back(isa.value());
  }
  return isas;
}

Result<std::vector<DType>> dtypes_from(const std::vector<std::string>& names) {
  constexpr DType kAll[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0};
  std::vector<DType> dtypes;
  for (const DType dtype : kAll)
    if (names.empty() || std::find(names.begin(), names.end(), dtype_name(dtype)) != names.end())
      dtypes.push_back(dtype);
  for (const std::string& name : names)
    if (std::none_of(std::begin(kAll), std::end(kAll), [&](DType d) { return name == dtype_name(d); }))
      return Status(Code::kInvalidArgument,
                    fmt::format("bench: dtype is '{}'; legal: f32, bf16, f16, q8_0", name));
  return dtypes;
}

int threads_from(int threads) {
  return threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace bench

// One record per (isa, dtype of keys and values): the ceiling of the arithmetic that attend uses for that pair, so
// that f32 on a bf16 ISA stands beside the f32 loop (cpu/attend/plan.h, isa_for).
Result<std::vector<Record>> bench_peak(const BenchArgs& args) {
  const auto isas = bench::isas_from(args.isas);
  if (!isas.ok()) return isas.status();
  const auto dtypes = bench::dtypes_from(args.dtypes);
  if (!dtypes.ok()) return dtypes.status();
  ThreadPool pool(bench::threads_from(args.threads));
  std::vector<Record> records;
  for (const Isa isa : isas.value()) {
    if (args.progress)
      args.progress(name_of(isa), static_cast<double>(records.size()) /
                                      static_cast<double>(isas.value().size() * dtypes.value().size()));
    std::vector<std::pair<Isa, double>> measured;
    for (const DType dtype : dtypes.value()) {
      const Isa arithmetic = cpu::isa_for(isa, dtype);
      auto known =
          std::find_if(measured.begin(), measured.end(), [&](auto& m) { return m.first == arithmetic; });
      if (known == measured.end()) {
        // The best of several rounds: a peak that another process disturbed is not one.
        double best = 0;
        for (int round = 0; round < 8; ++round)
          best = std::max(best, bench::measure_peak_gflops(pool, arithmetic, args.seconds / 8));
        known = measured.insert(measured.end(), {arithmetic, best});
      }
      records.push_back({"gflops",
                         known->second,
                         "GFLOP/s",
                         {{"isa", name_of(isa)}, {"dtype", dtype_name(dtype)}, {"threads", pool.threads()}}});
    }
  }
  return records;
}

}  // namespace routerelay
