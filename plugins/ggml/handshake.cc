// SPDX-License-Identifier: Apache-2.0
#include "handshake.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string_view>

namespace routerelay::ggml {
namespace {

// Odd sizes and different numbers of heads, so that two members that changed places cannot look right.
constexpr int64_t kDim = 72, kRows = 5, kKeys = 11, kQHeads = 6, kKvHeads = 3;
constexpr float kScale = 0.375f, kMaxBias = 0.0f, kSoftcap = 1.5f;
constexpr const char* kKeyName = "cache_k_l7";

// Keeps the first difference.
class Comparison {
 public:
  explicit Comparison(const Host& host) : host_(host) {}

  template <class T>
  void expect(std::string_view member, T expected, T found) {
    if (expected == found || !status_.ok()) return;
    status_ = {Code::kUnsupported, fmt::format("ggml {} has another layout: {} is {}, expected {}",
                                               host_.version, member, found, expected)};
  }
  void expect_address(std::string_view member, const void* expected, const void* found) {
    expect(member, reinterpret_cast<uintptr_t>(expected), reinterpret_cast<uintptr_t>(found));
  }
  const Status& status() const { return status_; }

 private:
  const Host& host_;
  Status status_;
};

Status check_tensors(const Host& host) {
  const HostFunctions& call = host.call;
  const size_t bytes = 16 * call.tensor_overhead();
  const std::unique_ptr<Context, void (*)(Context*)> context(call.init({bytes, nullptr, true}), call.free);
  if (context == nullptr) return {Code::kUnsupported, "the host could not make a context"};
  Context* c = context.get();
  HostTensor* q = call.new_tensor_4d(c, kTypeF32, kDim, kRows, kQHeads, 1);
  HostTensor* cache = call.set_name(call.new_tensor_4d(c, kTypeF16, kDim, kKvHeads, kKeys, 1), kKeyName);
  HostTensor* k = call.permute(c, cache, 0, 2, 1, 3);
  HostTensor* v = call.new_tensor_4d(c, kTypeF16, kDim, kKeys, kKvHeads, 1);
  HostTensor* mask = call.new_tensor_4d(c, kTypeF16, kKeys, kRows, 1, 1);
  call.set_input(mask);
  const HostTensor* node = call.flash_attn_ext(c, q, k, v, mask, kScale, kMaxBias, kSoftcap);

  Comparison same(host);
  same.expect("tensor_overhead", true, call.tensor_overhead() >= sizeof(HostTensor));
  same.expect("node.op", host.op.flash_attn_ext, node->op);
  same.expect("node.type", kTypeF32, node->type);
  const HostTensor* sources[] = {q, k, v, mask, nullptr};
  for (int i = 0; i < 5; ++i) same.expect_address(fmt::format("node.src[{}]", i), sources[i], node->src[i]);
  const float params[] = {kScale, kMaxBias, kSoftcap, 0.0f};
  for (int i = 0; i < 4; ++i)
    same.expect(fmt::format("node.op_params[{}]", i), std::bit_cast<int32_t>(params[i]), node->op_params[i]);
  const int64_t shape[] = {kDim, kQHeads, kRows, 1};
  for (int i = 0; i < 4; ++i) same.expect(fmt::format("node.ne[{}]", i), shape[i], node->ne[i]);
  same.expect_address("node.data", nullptr, node->data);
  same.expect("k.type", kTypeF16, k->type);
  same.expect("k.op", host.op.permute, k->op);
  const size_t strides[] = {2, kDim * kKvHeads * 2, kDim * 2, kDim * kKvHeads * kKeys * 2};
  for (int i = 0; i < 4; ++i) same.expect(fmt::format("k.nb[{}]", i), strides[i], k->nb[i]);
  same.expect_address("k.view_src", cache, k->view_src);
  same.expect("k.view_src.name", std::string_view(kKeyName),
              std::string_view(cache->name, strnlen(cache->name, 64)));
  same.expect("mask.flags", kFlagInput, mask->flags & kFlagInput);
  same.expect("q.flags", 0, q->flags & kFlagInput);
  return same.status();
}

// Whether two addresses lie in one module; false for what is no code at all.
bool share_a_module(const void* a, const void* b) {
  Dl_info of_a{}, of_b{};
  return dladdr(a, &of_a) != 0 && dladdr(b, &of_b) != 0 && of_a.dli_fbase == of_b.dli_fbase;
}

// Where the members lie that moved. graph_compute must be code of the module that the backend's name comes from,
// which is not ours, and is read first: in a backend of the older, shorter layout the newer one's device would lie
// past the end. The device must be the one that the host tells.
Status check_backend(Host& host, const void* own) {
  Backend* cpu = host.call.backend_init_by_type(kDeviceCpu, nullptr);
  if (cpu == nullptr)
    return {Code::kUnsupported,
            "the host has no CPU device yet; load its own backends first (ggml_backend_load_all)"};
  const std::unique_ptr<Backend, void (*)(Backend*)> owner(cpu, host.call.backend_free);
  Comparison same(host);
  const void* compute = member<void*>(cpu, host.layout.graph_compute);
  const bool in_host =
      share_a_module(compute, member<void*>(cpu, kBackendGetName)) && !share_a_module(compute, own);
  same.expect("backend.graph_compute is host code", true, in_host);
  if (!in_host) return same.status();
  same.expect_address("backend.device", host.call.backend_get_device(cpu),
                      member<Device*>(cpu, host.layout.device));
  host.cpu_code = compute;
  return same.status();
}

}  // namespace

Status shake_hands(Host& host, const void* own) {
  RR_TRY(check_tensors(host));
  return check_backend(host, own);
}

}  // namespace routerelay::ggml
