// SPDX-License-Identifier: Apache-2.0
// A storer warp: brings finished outputs from the query tiles to device memory and gives the tiles back.
#pragma once

#include "cuda/attend/params.h"
#include "cuda/attend/sm90/shared.cuh"

namespace routerelay::cuda {

template <AttendConfig cfg>
__device__ void store_rows(const AttendParams& params, Stream<cfg>& stream) {
  using C = Cut<cfg>;
  using S = Stream<cfg>;
  const int lane = threadIdx.x % 32;
  for (Ring<2> buffer;; buffer.advance()) {
    stream.query_full[buffer.slot].wait(buffer.parity);
    const Tile<cfg> tile = stream.tile[buffer.slot];
    if (tile.steps == 0) return;
    stream.out_full[buffer.slot].wait(buffer.parity);
    auto& out = stream.query[buffer.slot];
    if (tile.q_count == cfg.q_block) {
      if (lane < S::kConsumersEach * S::kBoxes) {
        const int consumer = lane / S::kBoxes, box = lane % S::kBoxes;
        store_box(
            params.out, out[consumer][box],
            {box * kBoxDims, tile.q_begin + consumer * C::kQueryStep, tile.q_head + consumer * C::kHeadStep});
        wait_until_stores_have_read();
      }
    } else {
      // A box would overwrite the queries of the next sequence.
      constexpr int kChunks = cfg.head_dim / 8;
      for (int i = lane; i < cfg.heads_per_tile * tile.q_count * kChunks; i += 32) {
        const int head = cfg.heads_per_tile == 1 ? 0 : i / (tile.q_count * kChunks),
                  query = i / kChunks - head * tile.q_count;
        const int chunk = i % kChunks, row = query % kConsumerRows;
        const int consumer = cfg.heads_per_tile == 1 ? query / kConsumerRows : head;
        const auto* box = reinterpret_cast<const char*>(out[consumer][chunk / 8]);
        auto* to = static_cast<typename S::Element*>(params.out_data) +
                   (tile.q_head + head) * params.out_head_stride +
                   (tile.q_begin + query) * params.out_token_stride + chunk * 8;
        *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(box + swizzled(row, chunk % 8));
      }
    }
    keep_order();
    stream.query_free[buffer.slot].arrive();
  }
}

}  // namespace routerelay::cuda
