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
  // By `n` blocks.
  __device__ void shorten(int n, int lane) {
    if (lane == offsetof(Work, blocks) / sizeof(int32_t)) word_ -= n;
  }

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
  // Block `from_end` (0 is the last) of the row, the same in every lane.
  __device__ __forceinline__ int32_t block(int from_end) {
    if (params_.picked == nullptr) return now_.blocks() - 1 - from_end;
    if (from_end / 32 != window_) {
      window_ = from_end / 32;
      entry_ = entry_of(now_, window_ * 32);
    }
    return __shfl_sync(~0u, entry_, from_end % 32);
  }
  // The row ends before its last `n` blocks.
  __device__ void drop_last(int n) {
    now_.shorten(n, lane_);
    window_ = 0;
    entry_ = entry_of(now_, 0);
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
    window_ = 0;
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
  int32_t entry_ = 0;  // block window_ * 32 + lane from the end of now_'s list
  int32_t window_ = 0;
  // Of the next row:
  Stage stage_;
  int index_ = 0;  // lane 0: as taken
  Item next_;
  int32_t next_entry_ = 0;
};

}  // namespace routerelay::cuda
