// SPDX-License-Identifier: Apache-2.0
// A converter warp: e4m3 values, as they arrive, become tiles of f16, which the consumers multiply.
#pragma once

#include "cuda/attend/sm90/shared.cuh"
#include "cuda/isa/e4m3.cuh"

namespace routerelay::cuda {

// Of kConverters warps, each takes its share of every tile's keys: all of a piece, or half of it. Four lanes read half
// a key, the next four half of one whose place in the swizzle is 5 apart: so neither reads nor writes of eight lanes
// meet in a bank.
template <AttendConfig cfg>
class Converter {
  using C = Cut<cfg>;
  using S = Stream<cfg>;
  static constexpr int kShare = C::kStepKeys / kConverters;
  static_assert(C::kPieceKeys % kShare == 0 && S::kSlots == S::kValueSlots);

 public:
  // Number `index` of the converters.
  __device__ Converter(S& stream, int index)
      : stream_(stream),
        first_(index * kShare),
        lane_(threadIdx.x % 32),
        box_(lane_ / 8 % 2),
        chunk_(lane_ % 4) {}

  __device__ void run() {
    for (Ring<2> buffer;; buffer.advance()) {
      stream_.query_full[buffer.slot].wait(buffer.parity);
      const Tile<cfg>& tile = stream_.tile[buffer.slot];
      const int steps = tile.steps, ragged = tile.ragged;
      if (steps == 0) return;
      for (int step = 0; step < steps; ++step) {
        stream_.value8_full[at_.slot].wait(at_.parity);
        stream_.slot_free[at_.slot].wait(at_.parity ^ 1);
        convert();
        if (step < ragged) [[unlikely]]
          zero_tail(tile.keys - tile.first_key[step][first_ / C::kPieceKeys]);
        fence_for_async_reads();
        __syncwarp();
        if (lane_ == 0) {
          stream_.value8_free[at_.slot].arrive();
          stream_.slot_full[at_.slot].arrive();
        }
        at_.advance();
      }
      stream_.query_free[buffer.slot].arrive();
    }
  }

 private:
  // Which of eight keys is this lane's, of the first four or of the others.
  __device__ int place(int half) const { return (2 * half + lane_ / 16) ^ (lane_ / 4 % 2 * 5); }
  // Of a chunk of 16 bytes of that key, the eight being those from `eight` on. (Its own swizzle is that of its place.)
  __device__ int offset(int eight, int half, int chunk) const {
    return eight * 128 + swizzled(place(half), chunk);
  }
  // 16 elements, as the slot holds them.
  __device__ void store(int eight, int half, uint4 low, uint4 high) {
    auto* box = reinterpret_cast<char*>(stream_.slot[at_.slot][box_]);
    *reinterpret_cast<uint4*>(box + offset(eight, half, chunk_ * 2)) = low;
    *reinterpret_cast<uint4*>(box + offset(eight, half, chunk_ * 2 + 1)) = high;
  }

  __device__ void convert() {
    constexpr int kAtOnce =
        4;  // reads before their writes, which might be to the same place for all ptxas knows
    const auto* values = reinterpret_cast<const char*>(stream_.value8[at_.slot]);
#pragma unroll 1
    for (int key = first_; key < first_ + kShare; key += kAtOnce / 2 * 8) {
      uint4 narrow[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        narrow[i] =
            *reinterpret_cast<const uint4*>(values + offset(key + i / 2 * 8, i % 2, box_ * 4 + chunk_));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const uint2 a = widened(narrow[i].x), b = widened(narrow[i].y);
        const uint2 c = widened(narrow[i].z), d = widened(narrow[i].w);
        store(key + i / 2 * 8, i % 2, {a.x, a.y, b.x, b.y}, {c.x, c.y, d.x, d.y});
      }
    }
  }

  // Values that no query of the row sees have a weight of 0, but may be anything: 0 times NaN is NaN. A piece's first
  // `seen` keys are seen.
  __device__ void zero_tail(int seen) {
#pragma unroll 1
    for (int eight = first_; eight < first_ + kShare; eight += 8) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (eight % C::kPieceKeys + place(half) >= seen) store(eight, half, {}, {});
      }
    }
  }

  S& stream_;
  const int first_, lane_, box_, chunk_;  // the first key of its share; of 64 dims, and of 16 among them
  Ring<S::kSlots> at_;                    // from the value8, to the slot of that number
};

}  // namespace routerelay::cuda
