// SPDX-License-Identifier: Apache-2.0
// What launch.cc hands to a kernel: plain structs, because kernels are compiled with their ISA's flags and must not
// emit inline functions that other code shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sight.h"
#include "routerelay/engine.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay::cpu {

// Most rows of one work item: the queries times the query heads that share a pass over the keys.
inline constexpr int kMaxItemRows = 256;

// One panel of one KV head: up to 64 tokens of k and v, packed for the ISA.
struct PackJob {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  DType dtype = DType::kF32;
  int64_t k_stride = 0;  // elements between tokens
  int64_t v_stride = 0;
  int n_keys = 0;  // 1 .. 64
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  uint8_t* finite = nullptr;  // written: 1 when no packed value is NaN or infinite
};

// Consecutive queries of one or several consecutive query heads that share KV head and blocks.
struct RowJob {
  const std::byte* q = nullptr;
  DType q_dtype = DType::kF32;
  int64_t q_stride = 0;  // elements between tokens
  int64_t q_head_stride = 0;
  int q_count = 0;
  int n_heads = 1;  // q_count * n_heads <= kMaxItemRows
  // scale * log2(e), above 0; on the scores, so that rounding the queries loses nothing more.
  float factor = 0;

  const std::byte* keys = nullptr;  // packed panels of the sequence's KV head
  const std::byte* values = nullptr;
  const uint8_t* finite = nullptr;  // per panel

  const int32_t* blocks = nullptr;  // ascending; null: 0 .. n_blocks - 1
  int64_t n_blocks = 0;
  int panels_per_block = 1;
  int32_t diagonal = 0;      // blocks from it on need a mask
  int64_t position = 0;      // of query 0
  int64_t visible_keys = 0;  // query i sees keys below min(position + i + 1, visible_keys)

  // What else is hidden, or null: f16, 0 where query 0 sees a key of the sequence, and per block how much.
  const uint16_t* mask = nullptr;
  int64_t mask_stride = 0;  // elements
  const Sight* sights = nullptr;

  std::byte* out = nullptr;
  DType out_dtype = DType::kF32;
  int64_t out_stride = 0;
  int64_t out_head_stride = 0;
  float* lse = nullptr;  // of query 0, or null
  int64_t lse_head_stride = 0;
};

// One line of configs.def, compiled.
struct Kernel {
  int64_t key_bytes = 0;      // of a packed panel
  int64_t value_bytes = 0;    // of a packed panel
  int64_t scratch_bytes = 0;  // per thread
  void (*pack)(const PackJob& job) = nullptr;
  void (*attend)(const RowJob& job, std::byte* scratch) = nullptr;
};

// Null when configs.def has no such line. One per kernel_<isa>.cc.
const Kernel* find_scalar(int64_t head_dim);
const Kernel* find_avx2(int64_t head_dim);
const Kernel* find_avx512(int64_t head_dim);
const Kernel* find_avx512bf16(int64_t head_dim);
const Kernel* find_amx(int64_t head_dim, DType kv_dtype);

}  // namespace routerelay::cpu
