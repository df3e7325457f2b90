// SPDX-License-Identifier: Apache-2.0
// What launch.cc hands to a summarize kernel: one block of one KV head, as plain pointers, because kernels are compiled
// with their ISA's flags and must not emit inline functions that other code shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "routerelay/tensor.hpp"

namespace routerelay::cpu {

struct SummarizeJob {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;  // read only for value_mean
  DType dtype = DType::kF32;
  int64_t k_stride = 0;  // elements between tokens
  int64_t v_stride = 0;
  int n_keys = 0;  // 1 .. k_block: what is there
  int head_dim = 0;
  int sub_k = 0;
  // Null where nobody asked; [head_dim] each, sub_means [ceil(n_keys / sub_k)][head_dim].
  float* mean = nullptr;
  float* box_min = nullptr;
  float* box_max = nullptr;
  float* radius = nullptr;  // one number; needs mean
  float* value_mean = nullptr;
  uint16_t* sub_means = nullptr;
  float* scratch = nullptr;  // [n_keys + 1][head_dim], 64-byte aligned
};

using SummarizeKernel = void (*)(const SummarizeJob& job);

// One per kernel_<isa>.cc. The bf16 machines use avx512: summaries are sums in f32 on each of them.
void summarize_scalar(const SummarizeJob& job);
void summarize_avx2(const SummarizeJob& job);
void summarize_avx512(const SummarizeJob& job);

}  // namespace routerelay::cpu
