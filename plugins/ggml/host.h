// SPDX-License-Identifier: Apache-2.0
// The running host: the ggml functions it exports, its version, and its operation numbers. Nothing of ggml is
// linked: two hosts out of three bind their symbols locally, so everything is looked up in the right module.
#pragma once

#include <cstdint>
#include <string>

#include "layout.h"
#include "routerelay/status.hpp"

namespace routerelay::ggml {

// ggml_init takes it by value.
struct InitParams {
  size_t mem_size;
  void* mem_buffer;
  bool no_alloc;
};

// Exported in every ggml from 0.9.11 on. The member's name without `ggml_` is the symbol's.
struct HostFunctions {
  const char* (*version)();
  const char* (*op_name)(int32_t op);
  int (*graph_n_nodes)(Graph*);
  HostTensor* (*graph_node)(Graph*, int);
  BufferType* (*backend_cpu_buffer_type)();
  bool (*backend_buft_is_host)(BufferType*);
  Backend* (*backend_init_by_type)(int32_t type, const char* params);
  int32_t (*backend_graph_compute)(Backend*, Graph*);
  Device* (*backend_get_device)(Backend*);
  void (*backend_free)(Backend*);
  Registry* (*backend_dev_backend_reg)(Device*);
  void* (*backend_reg_get_proc_address)(Registry*, const char* name);
  // For the handshake only.
  Context* (*init)(InitParams);
  void (*free)(Context*);
  size_t (*tensor_overhead)();
  HostTensor* (*new_tensor_4d)(Context*, int32_t type, int64_t, int64_t, int64_t, int64_t);
  HostTensor* (*permute)(Context*, HostTensor*, int, int, int, int);
  HostTensor* (*flash_attn_ext)(Context*, HostTensor* q, HostTensor* k, HostTensor* v, HostTensor* mask,
                                float scale, float max_bias, float logit_softcap);
  HostTensor* (*set_name)(HostTensor*, const char*);
  void (*set_input)(HostTensor*);
};

struct OpNumbers {
  int32_t flash_attn_ext = -1;
  int32_t none = -1, reshape = -1, view = -1, permute = -1, transpose = -1;

  bool is_free(int32_t op) const {
    return op == none || op == reshape || op == view || op == permute || op == transpose;
  }
};

struct Host {
  HostFunctions call{};
  OpNumbers op;
  std::string version;
  int32_t api = 0;  // what the host compares Registry::api_version with
  BackendLayout layout{};
  const void* cpu_code =
      nullptr;  // of its CPU backend, which may live in a module of its own; set by shake_hands
};

// Finds the host that `caller` (an address in its code) belongs to, or any loaded module that exports all
// functions; then its version, layout and operation numbers. kUnsupported says in one sentence what is missing.
Result<Host> find_host(const void* caller, bool allow_untested);

// API number and layout by which symbols a host exports: ggml has no other way to tell. A wrong number costs the
// host's line of refusal; the layout is proved before it is used (handshake.h).
struct Abi {
  int32_t api = 0;
  BackendLayout layout{};
};
Result<Abi> abi_of(bool has_2d_copies, bool has_alloc_n);

// The versions that were run; others need ROUTERELAY_ALLOW_UNTESTED=1.
Status check_version(const std::string& version, bool allow_untested);

}  // namespace routerelay::ggml
