// SPDX-License-Identifier: Apache-2.0
// Which row comes next: items of work and their lists, claimed from device memory ahead of need.
#pragma once

#include <cstddef>

#include "cuda/attend/params.h"

namespace routerelay::cuda {

// An item of work, one word a lane: registers are what its warp is short of. The whole warp must read a field, never
// some lanes of it.
class Item {
 public:
  Item() = default;
  __device__ Item(const Work* work, int lane)
      : word_(lane < kWords ? reinterpret_cast<const int32_t*>(work)[lane] : 0) {}

  __device__ int64_t list() const {
    return static_cast<uint32_t>(word(0)) | static_cast<int64_t>(word(1)) << 32;
  }
#define RR_FIELD(name)                                   \
  __device__ int32_t name() const {                      \
    return word(offsetof(Work, name) / sizeof(int32_t)); \
  }
  RR_FIELD(blocks)
  RR_FIELD(q_head)
  RR_FIELD(q_begin)
  RR_FIELD(q_count)
  RR_FIELD(position)
  RR_FIELD(keys)
  RR_FIELD(k_begin)
  RR_FIELD(sequence)
#undef RR_FIELD

 private:
  static constexpr int kWords = sizeof(Work) / sizeof(int32_t);
  __device__ __forceinline__ int32_t word(int i) const {
    return __shfl_sync(~0u, word_, i);
  }

  int32_t word_ = -1;  // a q_head of -1 is the end
};

// Rows in the order of params.work, each with 32 entries of its list at a time, one a lane. While a row is loaded, the
// next is taken, its item and then its list are asked for, a step of that at each progress(): so that no row begins
// with a wait for device memory. Not earlier: a row that is taken waits for its taker, however long those before it.
class WorkStream {
 public:
  // Of `n_streams` in the grid, this is number `stream`, whose first item is its own number.
  __device__ WorkStream(const AttendParams& params, int lane, int stream, int n_streams)
      : params_(params), lane_(lane), n_streams_(n_streams) {
    next_ = item(stream);
    stage_ = kItemAsked;
    advance();
  }
  __device__ bool done() const { return now_.q_head() < 0; }
  __device__ const Item& item() const { return now_; }
  // Blocks of the row, without those that leave_out left out.
  __device__ __forceinline__ int32_t blocks() const { return now_.blocks() - left_out_; }
  // Block `from_end` (0 is the last) of the row, the same in every lane. Asked for in rising order, up to 32 at a time.
  __device__ __forceinline__ int32_t block(int from_end) {
    if (params_.picked == nullptr) return now_.blocks() - 1 - from_end;
    if (from_end >= loaded_) {
      entry_ = entry_of(now_, left_out_ + loaded_);
      loaded_ += 32;
    }
    return __shfl_sync(~0u, entry_, from_end & 31);
  }
  // The row has no block from `limit` on, whoever listed them; before any block() of it.
  __device__ __forceinline__ void leave_out(int32_t limit) {
    if (params_.picked == nullptr) return;
    for (;;) {
      const bool out = lane_ < blocks() && entry_ >= limit;
      const int n_out = __popc(__ballot_sync(~0u, out));
      if (n_out == 0) [[likely]]
        return;
      left_out_ += n_out;
      entry_ = entry_of(now_, left_out_);
    }
  }
  __device__ void progress() {
    if (stage_ == kTaken) {
      next_ = item(n_streams_ + __shfl_sync(~0u, index_, 0));
      stage_ = kItemAsked;
    } else if (stage_ == kItemAsked) {
      next_entry_ = entry_of(next_, 0);
      stage_ = kListAsked;
    }
  }
  __device__ void advance() {
    while (stage_ != kListAsked) progress();
    now_ = next_;
    entry_ = next_entry_;
    loaded_ = 32;
    left_out_ = 0;
    if (!done() && lane_ == 0) index_ = atomicAdd(&params_.counts->next, 1);
    stage_ = kTaken;
  }

 private:
  enum Stage { kTaken, kItemAsked, kListAsked };

  __device__ __forceinline__ Item item(int index) const {
    const int n_first = min(params_.counts->first, kMaxFirst);
    if (index >= n_first) index += kMaxFirst - n_first;
    return index < kMaxFirst + params_.n_work ? Item(params_.work + index, lane_) : Item();
  }
  __device__ __forceinline__ int32_t entry_of(const Item& item, int from_end) const {
    if (params_.picked == nullptr) return 0;
    const int32_t at = item.blocks() - 1 - from_end - lane_;
    const int64_t list = item.list();
    return at >= 0 ? params_.picked[list + at] : 0;
  }

  const AttendParams& params_;
  const int lane_, n_streams_;
  Item now_;
  int32_t entry_ = 0;  // block loaded_ - 32 + lane from the end of the row
  int32_t loaded_ = 0;
  int32_t left_out_ = 0;  // of now_'s list, at its end
  // Of the next row:
  Stage stage_;
  int index_ = 0;  // lane 0: as taken
  Item next_;
  int32_t next_entry_ = 0;
};

}  // namespace routerelay::cuda
