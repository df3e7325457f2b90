// SPDX-License-Identifier: Apache-2.0
// A stand-in for a ggml host: a shared library with the functions that the plug-in looks up, built once for every
// layout, and bent to prove that the handshake notices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout.h"

#define RR_FAKE_EXPORT __attribute__((visibility("default")))

namespace routerelay::ggml {

// A graph of the fake is a plain list; the plug-in only asks for its nodes.
struct Graph {
  std::vector<HostTensor*> nodes;
};

// Which ggml this build of the fake is: the list stands in CMakeLists.txt.
using FakeBackend = BackendWith<RR_FAKE_COPIES>;
inline constexpr const char* kFakeVersion = RR_FAKE_VERSION;
inline constexpr int32_t kFakeApi = RR_FAKE_API;
inline constexpr int32_t kFakeMulMat = 1, kFakeFlashAttention = RR_FAKE_FLASH_ATTENTION;

enum class Bend { kNone, kTensorSources, kTensorStrides, kBackendDevice, kNoCpu, kNoFlashAttention };

struct FakeState {
  std::string version = kFakeVersion;
  Bend bend = Bend::kNone;
  int graphs_computed = 0;  // by the fake's CPU backend: what was delegated
  int cpu_threads = 0;
};
RR_FAKE_EXPORT FakeState& fake();

// As ggml_backend_load does: score, then init, then a look at the API number. The return addresses lie in the
// fake's module.
struct FakeLoad {
  int score = -1;
  Registry* registry = nullptr;  // nullptr too when the number is not the fake's, after a line on stderr
};
RR_FAKE_EXPORT FakeLoad fake_load(const char* path);
RR_FAKE_EXPORT const void* fake_code();  // an address in the fake's module

}  // namespace routerelay::ggml

// What tests call themselves; the plug-in finds these and the rest by name.
extern "C" {
RR_FAKE_EXPORT routerelay::ggml::BufferType* ggml_backend_cpu_buffer_type();
RR_FAKE_EXPORT int32_t ggml_backend_graph_compute(routerelay::ggml::Backend*, routerelay::ggml::Graph*);
}
