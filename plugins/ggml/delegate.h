// SPDX-License-Identifier: Apache-2.0
// What a claimed call that is not ours becomes: runs a graph on a CPU backend of the host's own.
#pragma once

#include "host.h"

namespace routerelay::ggml {

using AbortCallback = bool (*)(void* data);

// One per backend instance, so that instances may compute at the same time. Made when first needed.
class Delegate {
 public:
  explicit Delegate(const Host& host) : host_(host) {}
  ~Delegate();
  Delegate(const Delegate&) = delete;
  Delegate& operator=(const Delegate&) = delete;

  // The host's status; kStatusFailed when it has no CPU backend for us.
  int32_t compute(Graph* graph, int threads, AbortCallback abort, void* abort_data);

 private:
  const Host& host_;
  Backend* cpu_ = nullptr;
  void (*set_threads_)(Backend*, int) = nullptr;
  void (*set_abort_)(Backend*, AbortCallback, void*) = nullptr;
};

}  // namespace routerelay::ggml
