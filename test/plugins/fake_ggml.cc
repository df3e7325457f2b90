// SPDX-License-Identifier: Apache-2.0
#include "fake_ggml.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <string_view>
#include <utility>

#include "core/convert.h"

namespace routerelay::ggml {

struct Context {
  std::deque<HostTensor> tensors;
};
struct BufferType {};

FakeState& fake() {
  static FakeState state;
  return state;
}
const void* fake_code() {
  return reinterpret_cast<const void*>(&fake);
}

FakeLoad fake_load(const char* path) {
  void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return {};
  FakeLoad load;
  load.score = reinterpret_cast<int (*)()>(dlsym(module, "ggml_backend_score"))();
  if (load.score == 0) return load;
  void* entry = reinterpret_cast<void* (*)()>(dlsym(module, "ggml_backend_init"))();
  load.registry = static_cast<Registry*>(entry);
  if (load.registry != nullptr && load.registry->api_version != kFakeApi) {
    std::fprintf(stderr, "fake: incompatible API version (%d, not %d)\n", load.registry->api_version,
                 kFakeApi);
    load.registry = nullptr;
  }
  return load;
}

namespace {

constexpr std::pair<int32_t, const char*> kNames[] = {{0, "NONE"},
                                                      {kFakeMulMat, "MUL_MAT"},
                                                      {2, "RESHAPE"},
                                                      {3, "VIEW"},
                                                      {4, "PERMUTE"},
                                                      {5, "TRANSPOSE"},
                                                      {kFakeFlashAttention, "FLASH_ATTN_EXT"}};

DType dtype_of(int32_t cache_type) {
  return cache_type == kTypeQ8_0 ? DType::kQ8_0 : cache_type == kTypeBF16 ? DType::kBF16 : DType::kF16;
}
size_t type_bytes(int32_t type) {
  return type == kTypeF32 ? 4 : 2;
}
template <class T>
const T* at(const HostTensor& t, int64_t i1, int64_t i2, int64_t i3) {
  return reinterpret_cast<const T*>(static_cast<const std::byte*>(t.data) +
                                    i1 * static_cast<int64_t>(t.nb[1]) + i2 * static_cast<int64_t>(t.nb[2]) +
                                    i3 * static_cast<int64_t>(t.nb[3]));
}

// One query of one head in float64, any mask.
void attend_row(const HostTensor& node, int64_t row, int64_t head, int64_t stream) {
  const HostTensor &q = *node.src[0], &k = *node.src[1], &v = *node.src[2], &mask = *node.src[3];
  const int64_t d = q.ne[0], n = k.ne[1], kv_head = head / (q.ne[2] / k.ne[2]);
  const double scale = std::bit_cast<float>(node.op_params[0]);
  std::vector<double> sum(static_cast<size_t>(d), 0.0);
  double total = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double bias = f16_to_f32(at<uint16_t>(mask, row, 0, mask.ne[3] == 1 ? 0 : stream)[j]);
    double dot = 0;
    for (int64_t c = 0; c < d; ++c)
      dot += static_cast<double>(at<float>(q, row, head, stream)[c]) *
             static_cast<double>(load_f32(at<std::byte>(k, j, kv_head, stream), dtype_of(k.type), c));
    // Small test values: no maximum is needed to keep exp in range.
    const double weight = std::exp(dot * scale + bias);
    total += weight;
    for (int64_t c = 0; c < d; ++c)
      sum[static_cast<size_t>(c)] +=
          weight * static_cast<double>(load_f32(at<std::byte>(v, j, kv_head, stream), dtype_of(v.type), c));
  }
  float* out = static_cast<float*>(node.data) + ((stream * node.ne[2] + row) * node.ne[1] + head) * d;
  for (int64_t c = 0; c < d; ++c)
    out[c] = total > 0 ? static_cast<float>(sum[static_cast<size_t>(c)] / total) : 0.0f;
}

int32_t cpu_compute(Backend*, Graph* graph) {
  ++fake().graphs_computed;
  for (const HostTensor* node : graph->nodes) {
    if (node->op != kFakeFlashAttention) continue;
    for (int64_t s = 0; s < node->ne[3]; ++s)
      for (int64_t row = 0; row < node->ne[2]; ++row)
        for (int64_t head = 0; head < node->ne[1]; ++head) attend_row(*node, row, head, s);
  }
  return kStatusSuccess;
}

void* cpu_proc_address(Registry*, const char* name) {
  if (std::string_view(name) != "ggml_backend_set_n_threads") return nullptr;
  return reinterpret_cast<void*>(+[](Backend*, int threads) { fake().cpu_threads = threads; });
}
Registry g_cpu_registry = {
    .api_version = kFakeApi, .table = {.get_proc_address = cpu_proc_address}, .context = nullptr};
Device g_cpu_device = {.table = {}, .registry = &g_cpu_registry, .context = nullptr};
BufferType g_cpu_buffer_type;

}  // namespace
}  // namespace routerelay::ggml

using namespace routerelay::ggml;  // NOLINT: the exported functions below are C

#define RR_EXPORT extern "C" RR_FAKE_EXPORT

RR_EXPORT const char* ggml_version() {
  return fake().version.c_str();
}
RR_EXPORT const char* ggml_op_name(int32_t op) {
  for (const auto& [number, name] : kNames)
    if (number == op && !(fake().bend == Bend::kNoFlashAttention && number == kFakeFlashAttention))
      return name;
  return "OTHER";
}
RR_EXPORT int ggml_graph_n_nodes(Graph* graph) {
  return static_cast<int>(graph->nodes.size());
}
RR_EXPORT HostTensor* ggml_graph_node(Graph* graph, int i) {
  return graph->nodes[static_cast<size_t>(i)];
}
RR_EXPORT BufferType* ggml_backend_cpu_buffer_type() {
  return &g_cpu_buffer_type;
}
RR_EXPORT bool ggml_backend_buft_is_host(BufferType* type) {
  return type == &g_cpu_buffer_type;
}
RR_EXPORT Backend* ggml_backend_init_by_type(int32_t, const char*) {
  if (fake().bend == Bend::kNoCpu) return nullptr;
  auto* backend = new FakeBackend{};
  backend->get_name = [](Backend*) { return "CPU"; };
  // Code where the other layout expects graph_compute.
  for (AnyFunction& plan : backend->graph_plan) plan = [] {};
  backend->graph_compute = cpu_compute;
  // A host whose structure is one pointer longer.
  if (fake().bend == Bend::kBackendDevice)
    backend->context = &g_cpu_device;
  else
    backend->device = &g_cpu_device;
  return reinterpret_cast<Backend*>(backend);
}
RR_EXPORT int32_t ggml_backend_graph_compute(Backend* backend, Graph* graph) {
  return cpu_compute(backend, graph);
}
RR_EXPORT Device* ggml_backend_get_device(Backend*) {
  return &g_cpu_device;
}
RR_EXPORT void ggml_backend_free(Backend* backend) {
  delete reinterpret_cast<FakeBackend*>(backend);
}
RR_EXPORT Registry* ggml_backend_dev_backend_reg(Device* device) {
  return device->registry;
}
RR_EXPORT void* ggml_backend_reg_get_proc_address(Registry* registry, const char* name) {
  return registry->table.get_proc_address(registry, name);
}
// For the Python loader, which finds devices and loads through the host.
RR_EXPORT void* ggml_backend_load(const char* path) {
  return fake_load(path).registry;
}
RR_EXPORT size_t ggml_backend_dev_count() {
  return 1;
}
RR_EXPORT Device* ggml_backend_dev_get(size_t) {
  return &g_cpu_device;
}
RR_EXPORT int32_t ggml_backend_dev_type(Device*) {
  return std::getenv("RR_FAKE_GPU") != nullptr ? 1 : kDeviceCpu;
}
// Only looked for: they tell the API number and the layout.
#if RR_FAKE_TELLTALES >= 1
RR_EXPORT void ggml_backend_tensor_set_2d_async() {}
#endif
#if RR_FAKE_TELLTALES >= 2
RR_EXPORT void ggml_backend_buft_alloc_buffer_n() {}
#endif

struct FakeInitParams {
  size_t mem_size;
  void* mem_buffer;
  bool no_alloc;
};
RR_EXPORT Context* ggml_init(FakeInitParams) {
  return new Context;
}
RR_EXPORT void ggml_free(Context* context) {
  delete context;
}
RR_EXPORT size_t ggml_tensor_overhead() {
  return sizeof(HostTensor) + 32;
}
RR_EXPORT HostTensor* ggml_new_tensor_4d(Context* context, int32_t type, int64_t a, int64_t b, int64_t c,
                                         int64_t d) {
  HostTensor& t = context->tensors.emplace_back();
  t.type = type;
  const int64_t ne[] = {a, b, c, d};
  size_t stride = type_bytes(type);
  for (int i = 0; i < 4; ++i) {
    t.ne[i] = ne[i];
    t.nb[i] = stride;
    stride *= static_cast<size_t>(ne[i]);
  }
  return &t;
}
RR_EXPORT HostTensor* ggml_permute(Context* context, HostTensor* source, int a, int b, int c, int d) {
  HostTensor& t = context->tensors.emplace_back(*source);
  const int axes[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    t.ne[axes[i]] = source->ne[i];
    t.nb[axes[i]] = source->nb[i];
  }
  if (fake().bend == Bend::kTensorStrides) std::swap(t.nb[1], t.nb[2]);
  t.op = 4;
  t.view_src = source->view_src != nullptr ? source->view_src : source;
  return &t;
}
RR_EXPORT HostTensor* ggml_flash_attn_ext(Context* context, HostTensor* q, HostTensor* k, HostTensor* v,
                                          HostTensor* mask, float scale, float max_bias, float softcap) {
  HostTensor* t = ggml_new_tensor_4d(context, kTypeF32, v->ne[0], q->ne[2], q->ne[1], q->ne[3]);
  t->op = kFakeFlashAttention;
  const float params[] = {scale, max_bias, softcap};
  std::memcpy(t->op_params, params, sizeof params);
  HostTensor* sources[] = {q, k, v, mask};
  if (fake().bend == Bend::kTensorSources) std::swap(sources[0], sources[1]);
  std::copy(std::begin(sources), std::end(sources), t->src);
  return t;
}
RR_EXPORT HostTensor* ggml_set_name(HostTensor* t, const char* name) {
  std::strncpy(t->name, name, sizeof t->name - 1);
  return t;
}
RR_EXPORT void ggml_set_input(HostTensor* t) {
  t->flags |= kFlagInput;
}
