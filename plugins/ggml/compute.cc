// SPDX-License-Identifier: Apache-2.0
#include "compute.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "core/assert.h"
#include "flow/engine.h"
#include "mode.h"
#include "say.h"
#include "supports.h"
#include "tally.h"

namespace routerelay::ggml {
namespace {

// The attention nodes that are to be computed; a node without the flag only shapes the graph.
std::vector<const HostTensor*> attention_nodes(const Host& host, Graph* graph) {
  std::vector<const HostTensor*> nodes;
  const int n = host.call.graph_n_nodes(graph);
  for (int i = 0; i < n; ++i) {
    const HostTensor* node = host.call.graph_node(graph, i);
    if (node->op == host.op.flash_attn_ext && (node->flags & kFlagCompute) != 0) nodes.push_back(node);
  }
  return nodes;
}

}  // namespace

// A host that never names a number of threads has one of its own.
Instance::Instance(const Plugin& plugin, TraceSink& trace)
    : plugin_(plugin), trace_(trace), delegate_(plugin.host) {
  set_threads(1);
}

void Instance::set_threads(int threads) {
  threads_ = plugin_.env.threads > 0 ? plugin_.env.threads : std::max(1, threads);
}

void Instance::set_abort(AbortCallback abort, void* data) {
  abort_ = abort;
  abort_data_ = data;
}

int32_t Instance::delegate(Graph* graph, Reason reason, const std::string& message) {
  tally().delegated(reason, message);
  return delegate_.compute(graph, threads_, abort_, abort_data_);
}

int32_t Instance::graph_compute(Graph* graph) {
  try {
    return compute_nodes(graph);
  } catch (const std::bad_alloc&) {
    say("delegated to the host: no memory");
    return delegate_.compute(graph, threads_, abort_, abort_data_);
  }
}

int32_t Instance::compute_nodes(Graph* graph) {
  const std::vector<const HostTensor*> nodes = attention_nodes(plugin_.host, graph);
  for (const HostTensor* node : nodes)
    if (const Reason reason = why_declined(*node, plugin_.claims); reason != Reason::kNone)
      return delegate(graph, reason, "");
  if (nodes.empty()) return kStatusSuccess;
  if (const Status status = ensure_engine(); !status.ok())
    return delegate(graph, Reason::kEngine, status.message());
  Exec exec = EngineAccess::exec(*engine_);
  for (const HostTensor* node : nodes) {
    const auto start = std::chrono::steady_clock::now();
    const Request request = request_of(*node, exec);
    const Status status = compute(request, start);
    if (status.code() == Code::kAborted) return kStatusAborted;
    // The host computes the split again from the start: its nodes depend on no output of their own.
    const bool values = !request.masks.empty() && status.code() == Code::kUnsupported;
    if (!status.ok())
      return delegate(graph, values ? Reason::kMaskValues : Reason::kEngine, status.message());
  }
  return kStatusSuccess;
}

Status Instance::ensure_engine() {
  if (!engine_) {
    Result<Engine> made = Engine::create({.backend = plugin_.env.backend,
                                          .isa = plugin_.env.isa,
                                          .threads = threads_,
                                          .team = plugin_.team,
                                          .environment = false});
    if (!made.ok()) return made.status();
    engine_.emplace(std::move(made).value());
  }
  if (engine_->threads() != threads_) RR_TRY(engine_->set_threads(threads_));
  engine_->set_abort(abort_ == nullptr ? std::function<bool()>()
                                       : [abort = abort_, data = abort_data_] { return abort(data); });
  return {};
}

// Another length or place in the prompt is the next micro-batch. One of fewer rows than the one before is taken
// for the prompt's end and computed densely: nothing else says so, and a false alarm costs only time.
Status Instance::ensure_pass(const Request& request) {
  RR_ASSERT(!request.sequences.empty() && engine_);
  const int64_t position = request.sequences.front().q_offset;
  const bool same_batch = request.rows == pass_rows_ && position == pass_position_;
  if (!same_batch) final_chunk_ = request.rows < pass_rows_;
  // Layers that are unknown, or do not ascend, share no Pass.
  if (!same_batch || !pass_ || pass_layer_ < 0 || request.layer <= pass_layer_) {
    pass_.reset();
    Result<Pass> begun = Pass::begin(*engine_, *mode().now(), {.final_chunk = final_chunk_});
    if (!begun.ok()) return begun.status();
    pass_.emplace(std::move(begun).value());
    pass_rows_ = request.rows;
    pass_position_ = position;
  }
  pass_layer_ = request.layer;
  return {};
}

// The answer is there: whatever fails in telling of it must not fail the host's call.
void Instance::tell(const Request& request, const Pass& pass, std::chrono::steady_clock::time_point start) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  try {
    tally().taken(pass.report().preset, pass.report().layers.back(),
                  request.rows * static_cast<int64_t>(request.sequences.size()), engine_->threads(), seconds);
    if (request.masks.empty()) trace_.add(this, request);
  } catch (const std::exception& e) {
    say("a call is missing in report or trace: ", e.what());
  }
}

Status Instance::compute(const Request& request, std::chrono::steady_clock::time_point start) {
  if (request.masks.empty()) {
    RR_TRY(ensure_pass(request));
    RR_TRY(pass_->layer(request.args()));
    tell(request, *pass_, start);
    return {};
  }
  // Exact, hence of no Pass: layers with a sliding window come between those that relay to each other.
  Result<Pass> own = Pass::begin(*engine_, *mode().now());
  if (!own.ok()) return own.status();
  RR_TRY(own.value().layer(request.args()));
  tell(request, own.value(), start);
  return {};
}

}  // namespace routerelay::ggml
