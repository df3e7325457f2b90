// SPDX-License-Identifier: Apache-2.0
#include "delegate.h"

namespace routerelay::ggml {

Delegate::~Delegate() {
  if (cpu_ != nullptr) host_.call.backend_free(cpu_);
}

int32_t Delegate::compute(Graph* graph, int threads, AbortCallback abort, void* abort_data) {
  const HostFunctions& call = host_.call;
  if (cpu_ == nullptr) {
    cpu_ = call.backend_init_by_type(kDeviceCpu, nullptr);
    if (cpu_ == nullptr) return kStatusFailed;
    Registry* registry = call.backend_dev_backend_reg(call.backend_get_device(cpu_));
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(
          call.backend_reg_get_proc_address(registry, name));
    };
    find(set_threads_, "ggml_backend_set_n_threads");
    find(set_abort_, "ggml_backend_set_abort_callback");
  }
  if (set_threads_ != nullptr) set_threads_(cpu_, threads);
  if (set_abort_ != nullptr) set_abort_(cpu_, abort, abort_data);
  return call.backend_graph_compute(cpu_, graph);
}

}  // namespace routerelay::ggml
