// SPDX-License-Identifier: Apache-2.0
// The loader warp: takes rows one after another and streams their queries, keys and values into shared memory, running
// ahead of the consumers across row ends.
#pragma once

#include "cuda/attend/params.h"
#include "cuda/attend/sm90_shared.cuh"

namespace routerelay::cuda {

// Rows in the order of params.work, each with the last 32 entries of its list, one a lane. While a row is loaded, the
// next is taken, its item and then its list are asked for, a step of that at each progress(): so that no row begins with
// a wait for device memory. Not earlier: a row that is taken waits for its CTA, however long the rows before it are.
template <AttendConfig cfg>
class WorkStream {
 public:
  __device__ WorkStream(const AttendParams& params, int lane)
      : params_(params), lane_(lane), n_first_(min(params.counts->first, kMaxFirst)) {
    words_ = words_of(blockIdx.x);  // the first item of each CTA is its own index
    stage_ = kItemAsked;
    advance();
  }
  __device__ bool done() const { return now_.q_head < 0; }
  __device__ const Work& work() const { return now_; }
  // Block `from_end` (0 is the last) of the row, the same in every lane. Asked for in rising order.
  __device__ __forceinline__ int32_t block(int from_end) {
    if (params_.picked == nullptr) return now_.blocks - 1 - from_end;
    if (from_end >= loaded_) {
      entry_ = entry_of(now_.list, now_.blocks, loaded_);
      loaded_ += 32;
    }
    return __shfl_sync(~0u, entry_, from_end & 31);
  }
  __device__ void progress() {
    if (stage_ == kTaken) {
      words_ = words_of(gridDim.x + __shfl_sync(~0u, index_, 0));
      stage_ = kItemAsked;
    } else if (stage_ == kItemAsked) {
      const Work next = expanded(words_);
      next_entry_ = entry_of(next.list, next.blocks, 0);
      stage_ = kListAsked;
    }
  }
  __device__ void advance() {
    while (stage_ != kListAsked) progress();
    now_ = expanded(words_);
    entry_ = next_entry_;
    loaded_ = 32;
    if (!done() && lane_ == 0) index_ = atomicAdd(&params_.counts->next, 1);
    stage_ = kTaken;
  }
  // How many of the row's blocks, counted from its end, not every query sees whole.
  __device__ int partial_blocks() const {
    const int32_t whole =
        params_.causal ? min(now_.position + 1, now_.keys) : now_.keys;  // keys of the first query
    const int32_t block = params_.picked == nullptr ? now_.blocks - 1 - lane_ : entry_;
    const bool partial = lane_ < now_.blocks && (block + 1) * cfg.k_block > whole;
    return __popc(__ballot_sync(~0u, partial));
  }

 private:
  enum Stage { kTaken, kItemAsked, kListAsked };

  // An item lies one word a lane until its turn comes: registers are what this warp is short of.
  __device__ __forceinline__ int words_of(int index) const {
    constexpr int kWords = sizeof(Work) / sizeof(int);
    if (index >= n_first_) index += kMaxFirst - n_first_;
    if (index >= kMaxFirst + params_.n_work) return -1;  // a q_head of -1 is the end
    return lane_ < kWords ? reinterpret_cast<const int*>(params_.work + index)[lane_] : 0;
  }
  static __device__ __forceinline__ Work expanded(int words) {
    Work work;
    const auto word = [&](int i) { return __shfl_sync(~0u, words, i); };
    work.list = static_cast<uint32_t>(word(0)) | static_cast<int64_t>(word(1)) << 32;
    work.blocks = word(2), work.q_head = word(3), work.q_begin = word(4), work.q_count = word(5);
    work.position = word(6), work.keys = word(7), work.k_begin = word(8), work.sequence = word(9);
    return work;
  }
  __device__ __forceinline__ int32_t entry_of(int64_t list, int32_t blocks, int from_end) const {
    const int64_t at = blocks - 1 - from_end - lane_;
    return params_.picked != nullptr && blocks > 0 && at >= 0 ? params_.picked[list + at] : 0;
  }

  const AttendParams& params_;
  const int lane_;
  const int n_first_;  // items in the first places
  Work now_;
  int32_t entry_ = 0;  // block loaded_ - 32 + lane from the end of now_'s list
  int32_t loaded_ = 0;
  // Of the next row:
  Stage stage_;
  int index_ = 0;  // lane 0: as taken
  int words_ = 0;  // of its item
  int32_t next_entry_ = 0;
};

template <AttendConfig cfg>
class Loader {
  using S = Shared<cfg>;

 public:
  __device__ Loader(const AttendParams& params, S& shared)
      : params_(params), shared_(shared), lane_(threadIdx.x % 32), rows_(params, lane_) {}

  __device__ void run() {
    for (; !rows_.done(); rows_.advance()) {
      if (rows_.work().blocks == 0) {
        write_empty_row();
        continue;
      }
      const int steps = (rows_.work().blocks + S::kPieces - 1) / S::kPieces;
      load_queries(steps);
      for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int i = 0; i < S::kPieces; ++i) token_[i] = rows_.work().k_begin + key(step, i);
        const int kv_head = rows_.work().q_head / params_.heads_per_kv_head;
        load_slot(params_.k, kv_head);
        // Values follow one step behind, as the consumers want them: across row ends too.
        if (values_due_) load_values();
        rows_.progress();
        values_due_ = true;
        value_head_ = kv_head;
#pragma unroll
        for (int i = 0; i < S::kPieces; ++i) value_token_[i] = token_[i];
      }
    }
    wait_for_query_buffer();
    if (lane_ == 0) {
      shared_.tile[buffer_.slot].steps = 0;
      shared_.query_full[buffer_.slot].arrive();
    }
    if (values_due_) load_values();
  }

 private:
  __device__ void wait_for_query_buffer() {
    shared_.query_free[buffer_.slot].wait(buffer_.parity ^ 1);
  }

  __device__ void load_queries(int steps) {
    const Work& work = rows_.work();
    const int partial = rows_.partial_blocks();
    // An odd list has its gap in the first step, which therefore takes one block; later steps take two.
    const int gap = steps * S::kPieces - work.blocks;
    const int masked = max(gap, (partial + gap + S::kPieces - 1) / S::kPieces);
    int32_t masked_keys[kMaxMasked][S::kPieces];
#pragma unroll
    for (int step = 0; step < kMaxMasked; ++step)
#pragma unroll
      for (int i = 0; i < S::kPieces; ++i) masked_keys[step][i] = key(step, i);
    wait_for_query_buffer();
    Barrier& full = shared_.query_full[buffer_.slot];
    if (lane_ == 0) {
      Tile& tile = shared_.tile[buffer_.slot];
      tile = {steps, masked, work.q_head, work.q_begin, work.q_count, work.position, work.keys};
      for (int step = 0; step < kMaxMasked; ++step)
        for (int i = 0; i < S::kPieces; ++i) tile.first_key[step][i] = masked_keys[step][i];
      full.arrive_and_expect_tx(S::kQueryBytes);
    }
    __syncwarp();
    if (lane_ < kConsumers * S::kBoxes) {
      const int consumer = lane_ / S::kBoxes, box = lane_ % S::kBoxes;
      load_box(params_.q, full, kPassThroughL2, shared_.query[buffer_.slot][consumer][box],
               {box * kBoxDims, work.q_begin + consumer * kConsumerRows, work.q_head});
    }
    buffer_.advance();
  }

  // First key of block i of a step: from the end of the list to its front, so that partly seen blocks come first.
  __device__ __forceinline__ int32_t key(int step, int i) {
    const int from_end = step * S::kPieces + i - rows_.work().blocks % S::kPieces;
    return from_end < 0 || from_end >= rows_.work().blocks ? kNoKey : rows_.block(from_end) * cfg.k_block;
  }

  __device__ void load_values() {
    load_slot_from(params_.v, value_head_, value_token_);
  }
  __device__ void load_slot(const CUtensorMap& map, int head) {
    load_slot_from(map, head, token_);
  }

  __device__ __forceinline__ void load_slot_from(const CUtensorMap& map, int head,
                                                 const int32_t (&token)[S::kPieces]) {
    Barrier& full = shared_.slot_full[slot_.slot];
    shared_.slot_free[slot_.slot].wait(slot_.parity ^ 1);
    if (lane_ == 0) full.arrive_and_expect_tx(S::kSlotBytes);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < S::kPieces; ++i) {
      if (lane_ / S::kBoxes != i) continue;
      const int box = lane_ % S::kBoxes;
      load_box(map, full, kKeepInL2, shared_.slot[slot_.slot][box] + i * cfg.k_block * kBoxDims,
               {box * kBoxDims, token[i], head});
    }
    slot_.advance();
  }

  // Zeros and -inf for the queries of a row that sees nothing.
  __device__ void write_empty_row() {
    const Work& work = rows_.work();
    constexpr int kChunks = cfg.head_dim / 8;  // of 16 bytes
    auto* out = static_cast<typename S::Element*>(params_.out_data) + work.q_head * params_.out_head_stride;
    for (int i = lane_; i < work.q_count * kChunks; i += 32) {
      const int64_t token = work.q_begin + i / kChunks;
      *reinterpret_cast<int4*>(out + token * params_.out_token_stride + i % kChunks * 8) = int4{};
    }
    if (params_.lse_log2 == nullptr) return;
    for (int i = lane_; i < work.q_count; i += 32)
      params_.lse_log2[work.q_head * params_.lse_tokens + work.q_begin + i] = -INFINITY;
  }

  const AttendParams& params_;
  S& shared_;
  const int lane_;
  WorkStream<cfg> rows_;
  Ring<2> buffer_;
  Ring<S::kSlots> slot_;
  int32_t token_[S::kPieces];
  int32_t value_token_[S::kPieces];
  int value_head_ = 0;
  bool values_due_ = false;
};

}  // namespace routerelay::cuda
