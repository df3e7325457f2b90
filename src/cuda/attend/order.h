// SPDX-License-Identifier: Apache-2.0
// sequences, row_offsets -> work: every row of every head, or of as many heads as share tiles, as attend is to begin
// them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attend/work.h"
#include "routerelay/tensor.hpp"

namespace routerelay::cuda {

struct OrderParams {
  const Sequence* sequences = nullptr;  // [n_sequences], device memory; null: `only`
  Sequence only;
  int32_t n_sequences = 1;  // at most kMaxSequences
  int32_t n_rows = 0;       // of a head, over all sequences
  int32_t q_heads = 0, kv_heads = 0;
  int32_t heads_per_list = 1;  // query heads that share a list
  // That one item is of; divides q_heads / kv_heads, and heads_per_list where there are lists.
  int32_t heads_per_tile = 1;
  int32_t q_block = 0, k_block = 0;
  bool causal = true;
  const int64_t* row_offsets =
      nullptr;                   // [q_heads / heads_per_list * n_rows + 1] i64; null: every visible block
  Work* work = nullptr;          // [kMaxFirst + q_heads / heads_per_tile * n_rows]
  WorkCounts* counts = nullptr;  // all 0
};

inline constexpr int kMaxSequences = 4096;  // their row counts lie in shared memory

cudaError_t launch_order(const OrderParams& params, cudaStream_t stream);

}  // namespace routerelay::cuda
