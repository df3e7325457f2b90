// SPDX-License-Identifier: Apache-2.0
// A stand-in for a ggml host: a shared library with the functions that the plug-in looks up, whose layouts can be
// bent to prove that the handshake notices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout.h"

#define RR_FAKE_API __attribute__((visibility("default")))

namespace routerelay::ggml {

// A graph of the fake is a plain list; the plug-in only asks for its nodes.
struct Graph {
  std::vector<HostTensor*> nodes;
};

enum class Bend { kNone, kTensorSources, kTensorStrides, kBackendDevice, kNoCpu, kNoFlashAttention };

struct FakeState {
  std::string version = "0.26.0";
  Bend bend = Bend::kNone;
  int graphs_computed = 0;  // by the fake's CPU backend: what was handed back
  int cpu_threads = 0;
};
RR_FAKE_API FakeState& fake();

// As ggml_backend_load does: score, then init. The return addresses lie in the fake's module.
struct FakeLoad {
  int score = -1;
  Registry* registry = nullptr;
};
RR_FAKE_API FakeLoad fake_load(const char* path);
RR_FAKE_API const void* fake_code();  // an address in the fake's module

inline constexpr int32_t kFakeMulMat = 1, kFakeFlashAttention = 74;

}  // namespace routerelay::ggml

// What tests call themselves; the plug-in finds these and the rest by name.
extern "C" {
RR_FAKE_API routerelay::ggml::BufferType* ggml_backend_cpu_buffer_type();
RR_FAKE_API int32_t ggml_backend_graph_compute(routerelay::ggml::Backend*, routerelay::ggml::Graph*);
}
