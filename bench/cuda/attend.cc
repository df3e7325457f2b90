// SPDX-License-Identifier: Apache-2.0
// bench cuda-attend: TFLOP/s of attend on the current GPU by itself, over visited blocks, timed by events once the
// clocks are warm. What is timed is checked first.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "bench/cuda/check.h"
#include "bench/cuda/problem.h"
#include "bench/workload/workload.h"

namespace routerelay {
namespace {

using bench::CudaCase;
using bench::CudaProblem;

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Status make() {
    RR_CUDA(cudaEventCreate(&event_));
    return {};
  }
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class Stopwatch {
 public:
  Status make() {
    RR_TRY(begin_.make());
    return end_.make();
  }
  // Milliseconds a call. One more leads in: the host is in front when the span begins.
  Result<double> span(const CudaProblem& problem, int calls) const {
    RR_TRY(problem.run());
    RR_CUDA(cudaEventRecord(begin_));
    for (int i = 0; i < calls; ++i) RR_TRY(problem.run());
    RR_CUDA(cudaEventRecord(end_));
    RR_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    RR_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return static_cast<double>(ms) / calls;
  }

 private:
  Event begin_, end_;
};

// The median over spans of some 20 ms, which events resolve well.
Result<double> time_ms(const CudaProblem& problem, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kSpanMs = 20, kWarmSeconds = 0.5;
  constexpr int kMaxCalls = 20;
  constexpr size_t kMinSpans = 3;
  Stopwatch watch;
  RR_TRY(watch.make());
  const Result<double> once = watch.span(problem, 1);
  RR_TRY(once.status());
  const int calls = std::clamp(static_cast<int>(std::lround(kSpanMs / once.value())), 1, kMaxCalls);
  std::vector<double> spans;
  bool warm = false;
  for (auto begin = Clock::now();;) {
    const Result<double> span = watch.span(problem, calls);
    RR_TRY(span.status());
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (warm) spans.push_back(span.value());
    if (!warm && passed >= kWarmSeconds) warm = true, begin = Clock::now();
    if (spans.size() >= kMinSpans && passed >= seconds) break;
  }
  const auto middle = spans.begin() + static_cast<std::ptrdiff_t>(spans.size() / 2);
  std::nth_element(spans.begin(), middle, spans.end());
  return *middle;
}

Result<Record> measure(const CudaCase& c, double seconds) {
  CudaProblem problem(c);
  RR_TRY(problem.bring_to_device());
  RR_TRY(problem.run());
  RR_CUDA(cudaDeviceSynchronize());
  RR_TRY(check_last_run(problem));
  const Result<double> ms = time_ms(problem, seconds);
  RR_TRY(ms.status());
  const std::string block = c.dense() ? "dense" : fmt::format("{}x{}", c.q_block, c.k_block);
  const auto rounded = [](double x) { return std::round(x * 1e4) / 1e4; };
  return Record{"tflops",
                problem.flops() / ms.value() * 1e-9,
                "TFLOP/s",
                {{"case", c.name},
                 {"block", block},
                 {"keys", problem.tokens()},
                 {"heads", c.q_heads},
                 {"kv_heads", c.kv_heads},
                 {"heads_per_list", c.heads_per_list},
                 {"head_dim", c.head_dim},
                 {"kv_dtype", dtype_name(c.kv_dtype)},
                 {"density", rounded(problem.density())},
                 {"page", c.page},
                 {"causal", c.causal},
                 {"ms", rounded(ms.value())}}};
}

Result<Record> device_record() {
  const Result<cuda::Device> device = cuda::current_device();
  RR_TRY(device.status());
  int id = 0;
  cudaDeviceProp card{};
  RR_CUDA(cudaGetDevice(&id));
  RR_CUDA(cudaGetDeviceProperties(&card, id));
  return Record{"multiprocessors",
                static_cast<double>(device.value().multiprocessors),
                "",
                {{"gpu", card.name}, {"compute_capability", device.value().compute_capability}}};
}

Result<std::vector<Record>> run(const BenchArgs& args) {
  std::vector<Record> records;
  const auto keep = [&](Result<Record> record) {
    if (record.ok()) records.push_back(std::move(record).value());
    return record.status();
  };
  RR_TRY(keep(device_record()));
  std::vector<CudaCase> cases;
  for (const CudaCase& c : bench::cuda_cases())
    if (args.cases.empty() ? !c.by_name_only : std::ranges::find(args.cases, c.name) != args.cases.end())
      cases.push_back(c);
  double done = 0;
  for (const CudaCase& c : cases) {
    if (args.progress) args.progress(c.name, done++ / static_cast<double>(cases.size()));
    RR_TRY(keep(measure(c, args.seconds)));
  }
  return records;
}

}  // namespace

Result<std::vector<Record>> bench_cuda_attend(const BenchArgs& args) {
  Result<std::vector<Record>> records = run(args);
  if (records.ok()) return records;
  return Status(records.status().code(), "bench cuda-attend: " + records.status().message());
}

}  // namespace routerelay
