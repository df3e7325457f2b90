// SPDX-License-Identifier: Apache-2.0
// A converter warp: e4m3 values, as they arrive, become tiles of q's dtype, which the consumers multiply.
#pragma once

#include "cuda/attend/sm90/shared.cuh"
#include "cuda/isa/e4m3.cuh"

namespace routerelay::cuda {

// Of kConverters warps, each takes its share of every tile's keys. Four lanes read half a key, the next four half of
// one whose place in the swizzle is 5 apart: so neither reads nor writes of eight lanes meet in a bank.
template <AttendConfig cfg>
__device__ void convert_values(Stream<cfg>& stream, int converter) {
  using S = Stream<cfg>;
  using Element = typename S::Element;
  constexpr int kShare = S::kStepKeys / kConverters, kAtOnce = 4;           // reads, each of four keys
  const int lane = threadIdx.x % 32, box = lane / 8 % 2, chunk = lane % 4;  // 16 of the box's 64 dims
  const auto key_of = [=](int read) {
    const int pair = 2 * read + lane / 16;
    return converter * kShare + pair / 4 * 8 + (pair % 4 ^ lane / 4 % 2 * 5);
  };
  Ring<S::kValueSlots> from;
  Ring<S::kSlots> to;
  for (Ring<2> buffer;; buffer.advance()) {
    stream.query_full[buffer.slot].wait(buffer.parity);
    const int steps = stream.tile[buffer.slot].steps;
    if (steps == 0) return;
    for (int step = 0; step < steps; ++step) {
      stream.value8_full[from.slot].wait(from.parity);
      stream.slot_free[to.slot].wait(to.parity ^ 1);
      const auto* values = reinterpret_cast<const char*>(stream.value8[from.slot]);
      auto* wide = reinterpret_cast<char*>(stream.slot[to.slot][box]);
      for (int read = 0; read < kShare / 4; read += kAtOnce) {
        uint4 narrow[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          narrow[i] = *reinterpret_cast<const uint4*>(values + swizzled(key_of(read + i), box * 4 + chunk));
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const uint2 a = widened<Element>(narrow[i].x), b = widened<Element>(narrow[i].y);
          const uint2 c = widened<Element>(narrow[i].z), d = widened<Element>(narrow[i].w);
          const int key = key_of(read + i);
          *reinterpret_cast<uint4*>(wide + swizzled(key, chunk * 2)) = {a.x, a.y, b.x, b.y};
          *reinterpret_cast<uint4*>(wide + swizzled(key, chunk * 2 + 1)) = {c.x, c.y, d.x, d.y};
        }
      }
      fence_for_async_reads();
      __syncwarp();
      if (lane == 0) {
        stream.value8_free[from.slot].arrive();
        stream.slot_full[to.slot].arrive();
      }
      from.advance();
      to.advance();
    }
  }
}

}  // namespace routerelay::cuda
