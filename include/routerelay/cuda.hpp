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

// Row i = head * n_rows + row attends to picked[row_offsets[i]] .. picked[row_offsets[i + 1] - 1], ascending; of blocks
// that no query of the row sees, none is visited. Device memory. Null: every row attends to every block that it sees.
struct DeviceRoutes {
  const int64_t* row_offsets = nullptr;  // [heads * n_rows + 1] i64
  const int32_t* picked = nullptr;       // [total] i32
  // A divisor of q_heads: neighbouring query heads share their rows' lists. 0: every query head has its own. Where two
  // heads share list and keys, rows of 64 queries are faster on Hopper, and rounded in another order.
  int64_t heads = 0;
};

// Paged keys and values: tokens i * page_size and on of sequence s lie in page table[s * max_pages + i]. Entries past a
// sequence's last key are not read. k and v have n_pages * page_size tokens; the k_begin of a sequence is not read.
struct PageTable {
  const int32_t* table = nullptr;  // [n_sequences, max_pages] i32, device memory; null: not paged
  int64_t max_pages = 0;           // of a sequence
  int32_t page_size = 0;           // tokens: 16, 32, 64, 128 or 256
  int64_t page_stride = 0;         // elements, in k and in v; 0: page_size * token_stride
};

// Values that no query of a row sees may be anything. NaN among those that some of them see reaches all of them: what
// is behind a query's own sight is times 0.
struct AttendArgs {
  Tensor q;                   // [q_tokens, q_heads, head_dim] bf16 or f16
  Tensor k, v;                // [k_tokens, kv_heads, head_dim], dtype of q or e4m3; kv_heads divides q_heads
  MutableTensor out;          // as q
  float* lse_log2 = nullptr;  // [q_heads, q_tokens] f32, log2 of the softmax denominator; null: not wanted

  // [kv_heads] f32, device memory: what e4m3 keys and values are times, finite and more than 0. Null: 1.
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;

  // Rows are cut anew in each sequence, in this order. Null: `sequence` alone.
  const Sequence* sequences = nullptr;  // [n_sequences], device memory
  int64_t n_sequences = 1;
  Sequence sequence;  // all zero: every query of q at the end of every key of k
  // Of a head, over all sequences; there may be fewer, and of more the last are not written. Read with sequences.
  int64_t n_rows = 0;

  PageTable pages;
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
