// SPDX-License-Identifier: Apache-2.0
// One backend instance of the host: its engine, its Pass, and the graphs it is given.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "delegate.h"
#include "plugin.h"
#include "request.h"
#include "routerelay/engine.hpp"
#include "trace_sink.h"

namespace routerelay::ggml {

// Hosts make several per run only to estimate memory: cheap until the first graph. One thread at a time.
class Instance {
 public:
  Instance(const Plugin& plugin, TraceSink& trace);

  // A split of the host's graph: attention nodes among views and reshapes. Returns a ggml status. All of its
  // attention nodes are computed here, or the whole split by the host.
  int32_t graph_compute(Graph* graph);
  void set_threads(int threads);
  void set_abort(AbortCallback abort, void* data);

 private:
  int32_t compute_nodes(Graph* graph);
  Status compute(const Request& request, std::chrono::steady_clock::time_point start);
  Status ensure_engine();
  Status ensure_pass(const Request& request);
  void tell(const Request& request, const Pass& pass, std::chrono::steady_clock::time_point start);
  int32_t delegate(Graph* graph, Reason reason, const std::string& message);

  const Plugin& plugin_;
  TraceSink& trace_;
  Delegate delegate_;
  int threads_ = 1;
  AbortCallback abort_ = nullptr;
  void* abort_data_ = nullptr;
  std::optional<Engine> engine_;
  std::optional<Pass> pass_;   // of the micro-batch that is running
  int pass_layer_ = -1;        // its last layer
  int64_t pass_rows_ = 0;      // query tokens per stream of its calls
  int64_t pass_position_ = 0;  // of the first query of its first stream
  bool final_chunk_ = false;   // the running micro-batch had fewer rows than the one before
};

}  // namespace routerelay::ggml
