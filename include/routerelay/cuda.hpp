// SPDX-License-Identifier: Apache-2.0
// Attention over routes on an NVIDIA GPU: device memory in, device memory out, on the caller's stream. No call
// synchronises the device, allocates device memory or reads device memory on the host, so that all of them may be
// captured in a CUDA graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "routerelay/status.hpp"
#include "routerelay/tensor.hpp"

struct CUstream_st;  // what cudaStream_t points to

namespace routerelay::cuda {

// Row i = list_head * n_rows + row attends to picked[row_offsets[i]] .. picked[row_offsets[i + 1] - 1], ascending and
// visible to the row. Device memory. Null: every row attends to every block that it sees.
struct DeviceRoutes {
  const int64_t* row_offsets = nullptr;  // [heads * n_rows + 1] i64
  const int32_t* picked = nullptr;       // [total] i32
  int64_t heads =
      0;  // that have lists; divides q_heads, neighbours share one. 0: every query head has its own
};

// Where the keys and values of each sequence lie when they are paged: tokens p * page_size and on of sequence s in page
// table[s * max_pages + p], which begins at token page * page_size of k and v, or at page * page_stride elements.
struct PageTable {
  const int32_t* table =
      nullptr;              // [n_sequences, max_pages], device memory; null: keys and values are contiguous
  int64_t max_pages = 0;    // of a sequence
  int32_t page_size = 0;    // tokens: 16 to 256, a divisor or a multiple of k_block
  int64_t page_stride = 0;  // elements; 0: page_size * token_stride
};

// Values that share a block with a sequence's last keys, after them, must be finite where they are not past the
// tensor's end: their weight is 0, and 0 times NaN is NaN.
struct AttendArgs {
  Tensor q;                   // [q_tokens, q_heads, head_dim] bf16 or f16
  Tensor k, v;                // [k_tokens, kv_heads, head_dim], dtype of q; kv_heads divides q_heads
  MutableTensor out;          // as q
  float* lse_log2 = nullptr;  // [q_heads, q_tokens] f32, log2 of the softmax denominator; null: not wanted

  // Rows are cut anew in each sequence, in this order. Null: `sequence` alone.
  const Sequence* sequences = nullptr;  // [n_sequences], device memory
  int64_t n_sequences = 1;
  Sequence sequence;  // all zero: every query of q at the end of every key of k
  int64_t n_rows =
      0;  // of a head, over all sequences; may be more than there are. Read when sequences are given

  PageTable pages;  // k and v then have n_pages * page_size tokens, and a sequence's k_begin is not read
  DeviceRoutes routes;
  int q_block = 128;   // queries a row
  int k_block = 128;   // keys a block
  bool causal = true;  // query i sees keys 0 .. q_offset + i; otherwise every key of its sequence
  float scale = 0;     // of q.k; 0: 1 / sqrt(head_dim)
};

// What `workspace` must hold, a multiple of 256.
Result<int64_t> attend_workspace_bytes(const AttendArgs& args);

// q, k, v, routes -> out, lse_log2, enqueued on `stream` of the current device. A row without a block gives 0 and
// -inf. Same input, same bits. `workspace`: device memory, 256-byte aligned, of one call at a time.
Status attend(const AttendArgs& args, std::byte* workspace, int64_t workspace_bytes, CUstream_st* stream);

}  // namespace routerelay::cuda
