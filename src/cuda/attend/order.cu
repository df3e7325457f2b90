// SPDX-License-Identifier: Apache-2.0
// Longest rows first within the heads that share keys and values, those groups one after another: long rows cannot be
// left for the end, and what all multiprocessors read at a time is one head's keys and values. A counting sort.
#include <algorithm>

#include "cuda/attend/order.h"

namespace routerelay::cuda {
namespace {

constexpr int kThreads = 1024, kBuckets = 1024;

// First row of each sequence, then their number. All threads of the CTA.
__device__ void find_first_rows(const OrderParams& p, int32_t* first_row) {
  __shared__ int32_t warp_sum[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t before = 0;
  for (int begin = 0; begin < p.n_sequences; begin += kThreads) {
    const int s = begin + static_cast<int>(threadIdx.x);
    const bool here = s < p.n_sequences;
    const Sequence& sequence = p.sequences == nullptr ? p.only : p.sequences[here ? s : 0];
    int32_t sum = here ? static_cast<int32_t>((sequence.q_len + p.q_block - 1) / p.q_block) : 0;
    for (int d = 1; d < 32; d *= 2) {
      const int32_t left = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += left;
    }
    if (lane == 31) warp_sum[warp] = sum;
    __syncthreads();
    int32_t all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w == warp) sum += before + all;
      all += warp_sum[w];
    }
    if (here) first_row[s + 1] = sum;
    before += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) first_row[0] = 0;
  __syncthreads();
}

__device__ Work work_of(const OrderParams& p, const int32_t* first_row, int32_t q_head, int32_t row) {
  Work work{.q_head = q_head};
  if (row >= first_row[p.n_sequences]) return work;  // room that the caller left
  int low = 0, high = p.n_sequences - 1;             // the last sequence that begins at or before the row
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_row[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  const Sequence sequence = p.sequences == nullptr ? p.only : p.sequences[low];
  const int64_t begin = int64_t{row - first_row[low]} * p.q_block;
  const int64_t count = min(int64_t{p.q_block}, sequence.q_len - begin);
  const int64_t position = min(min(sequence.q_offset, sequence.k_len) + begin, sequence.k_len);
  const int64_t keys = p.causal ? min(sequence.k_len, position + count) : sequence.k_len;
  work.q_begin = static_cast<int32_t>(sequence.q_begin + begin);
  work.q_count = static_cast<int32_t>(count);
  work.position = static_cast<int32_t>(position);
  work.keys = static_cast<int32_t>(keys);
  work.k_begin = static_cast<int32_t>(sequence.k_begin);
  work.sequence = low;
  work.blocks = static_cast<int32_t>((keys + p.k_block - 1) / p.k_block);
  if (p.row_offsets != nullptr) {
    const int64_t list = int64_t{q_head} * p.n_rows + row;
    work.list = p.row_offsets[list];
    work.blocks = static_cast<int32_t>(p.row_offsets[list + 1] - work.list);
  }
  return work;
}

// One CTA for each key and value head; the items of a group lie at group * heads * n_rows.
__global__ void __launch_bounds__(kThreads) order_rows(const OrderParams p) {
  extern __shared__ int32_t first_row[];  // [n_sequences + 1]
  __shared__ int32_t count[kBuckets], warp_sum[kThreads / 32], longest;
  const int heads = p.q_heads / p.kv_heads;
  const int64_t items = int64_t{heads} * p.n_rows;
  const auto item = [&](int64_t i) {
    return work_of(p, first_row, static_cast<int32_t>(blockIdx.x * heads + i % heads),
                   p.n_rows - 1 - static_cast<int32_t>(i / heads));
  };
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.next = 0;
  count[threadIdx.x] = 0;
  if (threadIdx.x == 0) longest = 1;
  find_first_rows(p, first_row);

  int32_t most = 1;
  for (int64_t i = threadIdx.x; i < items; i += kThreads) most = max(most, item(i).blocks);
  atomicMax(&longest, most);
  __syncthreads();
  // Bucket 0 holds the longest rows.
  const auto bucket = [&](int32_t blocks) {
    return static_cast<int>(int64_t{longest - blocks} * (kBuckets - 1) / longest);
  };
  for (int64_t i = threadIdx.x; i < items; i += kThreads) atomicAdd(&count[bucket(item(i).blocks)], 1);
  __syncthreads();

  // Counts become first places.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t mine = count[threadIdx.x];
  int32_t sum = mine;
  for (int d = 1; d < 32; d *= 2) {
    const int32_t left = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += left;
  }
  if (lane == 31) warp_sum[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_sum[w];
  count[threadIdx.x] = sum - mine;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < items; i += kThreads) {
    const Work work = item(i);
    p.work[blockIdx.x * items + atomicAdd(&count[bucket(work.blocks)], 1)] = work;
  }
}

}  // namespace

void launch_order(const OrderParams& params, CUstream_st* stream) {
  static_assert(kThreads == kBuckets);
  order_rows<<<params.kv_heads, kThreads, (params.n_sequences + 1) * sizeof(int32_t), stream>>>(params);
}

}  // namespace routerelay::cuda
