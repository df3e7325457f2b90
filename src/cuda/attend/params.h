// SPDX-License-Identifier: Apache-2.0
// What an attend kernel is launched with, passed by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attend/work.h"

namespace routerelay::cuda {

// Token t of head h in page p begins at element p * page_stride + t * token_stride + h * head_stride of `data`.
struct TensorView {
  const void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0, page_stride = 0;
};

struct AttendParams {
  // [pages, heads, tokens, head_dim]; one page if not paged.
  CUtensorMap q, k, v, out;           // set for sm_90
  TensorView q_view, k_view, v_view;  // the same, without out
  const Work* work = nullptr;         // [kMaxFirst + n_work], in the order in which they should begin
  const int32_t* picked = nullptr;    // key blocks, ascending within a row; null: every block that a row sees
  WorkCounts* counts = nullptr;
  const int32_t* page_table = nullptr;  // [n_sequences, max_pages]; null: k and v are one page
  int64_t max_pages = 0;
  int32_t page_bits = 0;  // a page has 2^page_bits tokens, the only one as many as are legal
  int32_t box_keys = 0;   // tokens of a box of k and v
  int32_t n_work = 0;
  int32_t heads_per_kv_head = 1;
  bool causal = true;
  float scale_log2 = 1;                                // of q.k, in bits
  const float *k_scale = nullptr, *v_scale = nullptr;  // [kv_heads] of e4m3 keys and values; null: 1
  void* out_data = nullptr;                            // for rows that are not a whole box
  int64_t out_token_stride = 0, out_head_stride = 0;   // elements
  float* lse_log2 = nullptr;                           // [q_heads, lse_tokens] f32 or null
  int64_t lse_tokens = 0;
};

}  // namespace routerelay::cuda
