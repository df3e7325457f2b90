// SPDX-License-Identifier: Apache-2.0
// Longest rows first within the heads that share keys and values, those groups one after another: long rows cannot be
// left for the end, and what all multiprocessors read at a time is one head's keys and values. Rows far longer than
// their group's mean begin before all groups. A counting sort.
#include "cuda/attend/order.h"
#include "cuda/isa/launch.h"

namespace routerelay::cuda {
namespace {

constexpr int kThreads = 1024, kBuckets = 1024;
constexpr int kMuchLonger = 4;  // than the mean; twice is what causal rows reach by themselves

// Inclusive sum over the CTA of a value per thread. Called by all threads.
__device__ int32_t running_sum(int32_t value) {
  __shared__ int32_t warp_sum[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int d = 1; d < 32; d *= 2) {
    const int32_t left = __shfl_up_sync(~0u, value, d);
    if (lane >= d) value += left;
  }
  if (lane == 31) warp_sum[warp] = value;
  __syncthreads();
  for (int w = 0; w < warp; ++w) value += warp_sum[w];
  __syncthreads();
  return value;
}

// First row of each sequence, then their number. Called by all threads.
__device__ void find_first_rows(const OrderParams& p, int32_t* first_row) {
  __shared__ int32_t last;
  int32_t before = 0;
  for (int begin = 0; begin < p.n_sequences; begin += kThreads) {
    const int s = begin + static_cast<int>(threadIdx.x);
    const bool here = s < p.n_sequences;
    const Sequence& sequence = p.sequences == nullptr ? p.only : p.sequences[here ? s : 0];
    const int32_t rows = here ? static_cast<int32_t>((sequence.q_len + p.q_block - 1) / p.q_block) : 0;
    const int32_t sum = before + running_sum(rows);
    if (here) first_row[s + 1] = sum;
    if (threadIdx.x == kThreads - 1) last = sum;
    __syncthreads();
    before = last;
    __syncthreads();
  }
  if (threadIdx.x == 0) first_row[0] = 0;
  __syncthreads();
}

// A row as all heads see it: without q_head, and with every visible block.
__device__ Work row_of(const OrderParams& p, const int32_t* first_row, int32_t row) {
  Work work;
  if (row >= first_row[p.n_sequences]) return work;  // room that the caller left
  int low = 0, high = p.n_sequences - 1;             // the last sequence that begins at or before the row
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_row[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  const Sequence& sequence = p.sequences == nullptr ? p.only : p.sequences[low];
  const auto k_len = static_cast<int32_t>(sequence.k_len);
  const int32_t begin = (row - first_row[low]) * p.q_block;
  work.q_begin = static_cast<int32_t>(sequence.q_begin) + begin;
  work.q_count = min(p.q_block, static_cast<int32_t>(sequence.q_len) - begin);
  work.position = min(static_cast<int32_t>(min(sequence.q_offset, sequence.k_len)) + begin, k_len);
  work.keys = p.causal ? min(k_len, work.position + work.q_count) : k_len;
  work.k_begin = static_cast<int32_t>(sequence.k_begin);
  work.sequence = low;
  work.blocks = (work.keys + p.k_block - 1) / p.k_block;
  return work;
}

// Its list, if there is one and the row exists.
__device__ void set_head(const OrderParams& p, int32_t q_head, int32_t row, Work& work) {
  work.q_head = q_head;
  if (p.row_offsets == nullptr || work.q_count == 0) return;
  const int64_t* offset = p.row_offsets + int64_t{q_head / p.heads_per_list} * p.n_rows + row;
  work.list = offset[0];
  work.blocks = static_cast<int32_t>(offset[1] - offset[0]);
}

// Descending; exact up to 64 blocks, then to a 32nd: a float's exponent and its first five bits.
__device__ int bucket_of(int32_t blocks) {
  constexpr int kBits = 5, kOfOne = 127 << kBits;
  const auto place = static_cast<int>(__float_as_uint(static_cast<float>(blocks)) >> (23 - kBits));
  return kBuckets - 1 - max(0, place - kOfOne + 1);
}

// One CTA for each key and value head; the items of a group lie at kMaxFirst + group * tiles of a row * n_rows.
__global__ void __launch_bounds__(kThreads) order_rows(const OrderParams p) {
  extern __shared__ int32_t first_row[];  // [n_sequences + 1]
  __shared__ int32_t count[kBuckets];
  __shared__ unsigned long long all_blocks;
  const int32_t head = static_cast<int32_t>(blockIdx.x) * (p.q_heads / p.kv_heads);
  const int32_t tiles = p.q_heads / p.kv_heads / p.heads_per_tile;  // of a row
  count[threadIdx.x] = 0;
  if (threadIdx.x == 0) all_blocks = 0;
  find_first_rows(p, first_row);
  const int32_t items = tiles * p.n_rows;
  const auto for_each_item = [&](auto use) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < items; i += kThreads) {
      const int32_t row = i % p.n_rows;
      Work work = row_of(p, first_row, row);
      set_head(p, head + i / p.n_rows * p.heads_per_tile, row, work);
      use(work);
    }
  };

  unsigned long long blocks = 0;
  for_each_item([&](const Work& work) {
    blocks += work.blocks;
    atomicAdd(&count[bucket_of(work.blocks)], 1);
  });
  for (int d = 16; d > 0; d /= 2) blocks += __shfl_xor_sync(~0u, blocks, d);
  if (threadIdx.x % 32 == 0) atomicAdd(&all_blocks, blocks);
  __syncthreads();
  const int32_t mine = count[threadIdx.x];
  const int32_t before = running_sum(mine) - mine;
  count[threadIdx.x] = before;  // where the bucket begins
  __syncthreads();

  const int32_t real_items =
      tiles * max(1, min(first_row[p.n_sequences], p.n_rows));  // without room to spare
  const auto much = static_cast<int64_t>(kMuchLonger * all_blocks / real_items);
  Work* const group = p.work + kMaxFirst + int64_t{blockIdx.x} * items;
  for_each_item([&](const Work& work) {
    Work& place = group[atomicAdd(&count[bucket_of(work.blocks)], 1)];
    const int first = work.blocks > much ? atomicAdd(&p.counts->first, 1) : kMaxFirst;
    place = first < kMaxFirst ? Work{} : work;  // an empty place is a row of no queries
    if (first < kMaxFirst) p.work[first] = work;
  });
}

}  // namespace

cudaError_t launch_order(const OrderParams& params, cudaStream_t stream) {
  static_assert(kThreads == kBuckets);
  return launch(order_rows, params, params.kv_heads, kThreads, (params.n_sequences + 1) * sizeof(int32_t),
                stream);
}

}  // namespace routerelay::cuda
