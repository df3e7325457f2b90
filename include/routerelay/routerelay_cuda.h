// SPDX-License-Identifier: Apache-2.0
// The C ABI (C11) of librouterelay-cuda: attention over routes on an NVIDIA GPU. The rules of routerelay.h hold; all
// pointers of an args struct but rr_tensor itself, its shape and its strides are device memory.
#ifndef ROUTERELAY_ROUTERELAY_CUDA_H
#define ROUTERELAY_ROUTERELAY_CUDA_H

#include "routerelay/routerelay.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RR_DEVICE_CUDA 2

#define RR_E4M3 10u        // dtype_code of k and v, as DLPack's float8_e4m3fn: 8 bits, no infinities
#define RR_CUDA_CAUSAL 1u  // query i sees keys 0 .. q_offset + i; otherwise every key of its sequence

// Tensors lie on the current device; their device_id is not read.
typedef struct rr_cuda_attend_args {
  uint32_t struct_size;
  uint32_t flags;        // RR_CUDA_CAUSAL
  const rr_tensor* q;    // [q_tokens, q_heads, head_dim] bf16 or f16
  const rr_tensor* k;    // [k_tokens, kv_heads, head_dim], dtype of q or RR_E4M3; kv_heads divides q_heads
  const rr_tensor* v;    // as k
  const rr_tensor* out;  // as q; must not overlap q, k, v
  float* lse_log2;       // [q_heads, q_tokens]; null: not wanted
  const rr_sequence*
      sequences;  // [n_sequences], device memory; null: one, its queries at the end of its keys
  int64_t n_sequences;
  int64_t n_rows;  // rows of a head over all sequences, or more; read when sequences are given
  // Row i = head * n_rows + row visits picked[row_offsets[i]] .. picked[row_offsets[i + 1] - 1], ascending; of
  // blocks that no query of the row sees, none is visited. Both null: every block that a row sees.
  const int64_t* row_offsets;  // [list_heads * n_rows + 1]
  const int32_t* picked;
  int32_t q_block;  // queries a row; 0: 128
  int32_t k_block;  // keys a block; 0: 128
  float scale;      // of q.k; 0: 1/sqrt(head_dim)
  // A divisor of q_heads: neighbouring heads share lists. 0: every query head has its own. Where two heads share list
  // and keys, rows of 64 queries are faster on Hopper, and rounded in another order.
  int64_t list_heads;
  // Paged keys and values: tokens i * page_size and on of sequence s lie in page page_table[s * max_pages + i]; entries
  // past a sequence's last key are not read. k and v have n_pages * page_size tokens. Null: not paged.
  const int32_t* page_table;  // [n_sequences, max_pages], device memory
  int64_t max_pages;
  int64_t page_stride;   // elements, in k and in v; 0: page_size * token stride
  int32_t page_size;     // 16, 32, 64, 128 or 256
  const float* k_scale;  // [kv_heads], device memory: what e4m3 keys and values are times, > 0; null: 1
  const float* v_scale;
} rr_cuda_attend_args;

RR_API const char* rr_cuda_version(void);  // the release, as rr_version
// Why this thread's last call of this library failed.
RR_API const char* rr_cuda_last_error(void);
RR_API rr_status rr_cuda_attend_workspace_bytes(const rr_cuda_attend_args* args, int64_t* bytes);
// Enqueues on `stream` (a cudaStream_t) of the current device. No synchronisation, no allocation: may be captured in a
// graph. workspace: device memory, 256-byte aligned, of one call at a time.
RR_API rr_status rr_cuda_attend(const rr_cuda_attend_args* args, void* workspace, int64_t workspace_bytes,
                                void* stream);

#ifdef __cplusplus
}
#endif

#endif
