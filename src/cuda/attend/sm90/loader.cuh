// SPDX-License-Identifier: Apache-2.0
// A loader warp: takes rows one after another and streams their queries, keys and values into shared memory, running
// ahead of the consumers across row ends.
#pragma once

#include "cuda/attend/params.h"
#include "cuda/attend/sm90/shared.cuh"
#include "cuda/attend/sm90/work_stream.cuh"

namespace routerelay::cuda {

template <AttendConfig cfg>
class Loader {
  using C = Cut<cfg>;
  using S = Stream<cfg>;

 public:
  // Of the stream `index` of its CTA.
  __device__ Loader(const AttendParams& params, S& stream, int index)
      : params_(params),
        stream_(stream),
        lane_(threadIdx.x % 32),
        rows_(params, lane_, blockIdx.x * C::kStreams + index, gridDim.x * C::kStreams) {}

  __device__ void run() {
    Place values;
    int value_head = -1;  // none to load
    for (; !rows_.done(); rows_.advance()) {
      const int steps = cut_row();
      if (steps == 0) {
        write_empty_row();
        continue;
      }
      load_queries(steps);
      const int kv_head = rows_.item().q_head() / params_.heads_per_kv_head;
      Place next = place_of(0);
      for (int step = 0; step < steps; ++step) {
        const Place keys = next;
        load_keys(kv_head, keys);
        if (step + 1 < steps) next = place_of(step + 1);  // a page is asked for long before it is needed
        // Values follow one step behind, as the consumers want them: across row ends too.
        if (value_head >= 0) load_values(value_head, values);
        rows_.progress();
        values = keys;
        value_head = kv_head;
      }
    }
    wait_for_query_buffer();
    if (lane_ == 0) {
      stream_.tile[buffer_.slot].steps = 0;
      stream_.query_full[buffer_.slot].arrive();
    }
    if (value_head >= 0) load_values(value_head, values);
  }

 private:
  // Where this lane's box of a step begins: a token of a page.
  struct Place {
    int32_t token = kNoKey, page = 0;
  };

  // Steps of the row.
  __device__ int cut_row() {
    const int keys = rows_.item().keys();
    rows_.leave_out((keys + cfg.k_block - 1) / cfg.k_block);  // what no query sees
    const int blocks = rows_.blocks();
    if (blocks == 0) return 0;
    if constexpr (C::kHalves == 1) {
      before_ = blocks % C::kPieces;  // an odd list has its gap in the first step
      return (blocks + before_) / C::kPieces;
    } else {
      // The last block's upper half may be one that no query sees.
      before_ = rows_.block(0) * cfg.k_block + C::kStepKeys >= keys ? 1 : 0;
      return blocks * C::kHalves - before_;
    }
  }

  // First key of piece i of a step: from the end of the list to its front, so that partly seen blocks come first.
  __device__ __forceinline__ int32_t key(int step, int i) {
    if constexpr (C::kHalves == 1) {
      const int from_end = step * C::kPieces + i - before_;
      return from_end < 0 || from_end >= rows_.blocks() ? kNoKey : rows_.block(from_end) * cfg.k_block;
    } else {
      const int half = step + before_, from_end = half / C::kHalves;
      if (from_end >= rows_.blocks()) return kNoKey;
      return rows_.block(from_end) * cfg.k_block + (C::kHalves - 1 - half % C::kHalves) * C::kStepKeys;
    }
  }

  __device__ __forceinline__ Place place_of(int step) {
    const int row = lane_ / S::kKeyBoxes * params_.box_keys;  // of the step's keys
    int32_t at = key(step, 0);
#pragma unroll
    for (int i = 1; i < C::kPieces; ++i) {
      const int32_t other = key(step, i);
      if (row / C::kPieceKeys == i) at = other;
    }
    at += row % C::kPieceKeys;
    const int32_t seen = rows_.item().keys();
    const bool here = row < C::kStepKeys && at < seen;
    if (params_.page_table == nullptr) {
      const int32_t begin = rows_.item().k_begin();
      return here ? Place{begin + at, 0} : Place{};
    }
    const int32_t* table = params_.page_table + rows_.item().sequence() * params_.max_pages;
    return here ? Place{at & ((1 << params_.page_bits) - 1), table[at >> params_.page_bits]} : Place{};
  }

  __device__ void wait_for_query_buffer() {
    stream_.query_free[buffer_.slot].wait(buffer_.parity ^ 1);
  }

  __device__ void load_queries(int steps) {
    const Item& item = rows_.item();
    Tile<cfg> tile{.steps = steps,
                   .q_head = item.q_head(),
                   .q_begin = item.q_begin(),
                   .q_count = item.q_count(),
                   .position = item.position(),
                   .keys = item.keys()};
    const int32_t whole =
        params_.causal ? min(item.position() + 1, item.keys()) : item.keys();  // for the first query
#pragma unroll
    for (int step = 0; step < C::kMaxMasked; ++step) {
#pragma unroll
      for (int i = 0; i < C::kPieces; ++i) {
        const int32_t first = tile.first_key[step][i] = key(step, i);
        if (step < steps && first + C::kPieceKeys > whole) tile.masked = step + 1;
        if (first < tile.keys && first + C::kPieceKeys > tile.keys) tile.ragged = step + 1;
      }
    }
    [[maybe_unused]] float key_scale = 1, value_scale = 1;
    if constexpr (is_quantised(cfg)) {
      const int kv_head = tile.q_head / params_.heads_per_kv_head;
      if (params_.k_scale != nullptr) key_scale = params_.k_scale[kv_head];
      if (params_.v_scale != nullptr) value_scale = params_.v_scale[kv_head];
    }
    wait_for_query_buffer();
    Barrier& full = stream_.query_full[buffer_.slot];
    if (lane_ == 0) {
      if constexpr (is_quantised(cfg)) {
        stream_.key_scale[buffer_.slot] = key_scale;
        stream_.value_scale[buffer_.slot] = value_scale;
      }
      stream_.tile[buffer_.slot] = tile;
      full.arrive_and_expect_tx(S::kQueryBytes);
    }
    __syncwarp();
    if (lane_ < C::kConsumersEach * S::kBoxes) {
      const int consumer = lane_ / S::kBoxes, box = lane_ % S::kBoxes;
      load_box(
          params_.q, full, kPassThroughL2, stream_.query[buffer_.slot][consumer][box],
          {box * kBoxDims, tile.q_begin + consumer * C::kQueryStep, tile.q_head + consumer * C::kHeadStep});
    }
    buffer_.advance();
  }

  __device__ __forceinline__ void load_keys(int head, Place place) {
    if constexpr (is_quantised(cfg))
      load(params_.k, head, place, key8_, stream_.key8_full, stream_.key8_free, stream_.key8);
    else
      load_slot(params_.k, head, place);
  }
  __device__ __forceinline__ void load_values(int head, Place place) {
    if constexpr (is_quantised(cfg))
      load(params_.v, head, place, value8_, stream_.value8_full, stream_.value8_free, stream_.value8);
    else
      load_slot(params_.v, head, place);
  }
  __device__ __forceinline__ void load_slot(const CUtensorMap& map, int head, Place place) {
    Barrier& full = stream_.slot_full[slot_.slot];
    stream_.slot_free[slot_.slot].wait(slot_.parity ^ 1);
    if (lane_ == 0) full.arrive_and_expect_tx(S::kSlotBytes);
    __syncwarp();
    const int box = lane_ % S::kBoxes, row = lane_ / S::kBoxes * params_.box_keys;
    if (row < C::kStepKeys) {
      load_box(map, full, kKeepInL2, stream_.slot[slot_.slot][box] + row * kBoxDims,
               {box * kBoxDims, place.token, head, place.page});
    }
    slot_.advance();
  }
  // e4m3: a box is a whole token wide.
  template <int N, class Tile>
  __device__ __forceinline__ void load(const CUtensorMap& map, int head, Place place, Ring<N>& ring,
                                       Barrier (&full)[N], Barrier (&free)[N], Tile (&tiles)[N]) {
    free[ring.slot].wait(ring.parity ^ 1);
    if (lane_ == 0) full[ring.slot].arrive_and_expect_tx(sizeof(Tile));
    __syncwarp();
    const int row = lane_ * params_.box_keys;
    if (row < C::kStepKeys) {
      load_box(map, full[ring.slot], kKeepInL2, tiles[ring.slot] + row * cfg.head_dim,
               {0, place.token, head, place.page});
    }
    ring.advance();
  }

  // Zeros and -inf for the queries of a row that sees nothing.
  __device__ void write_empty_row() {
    const int q_head = rows_.item().q_head(), q_begin = rows_.item().q_begin(),
              q_count = rows_.item().q_count();
    constexpr int kChunks = cfg.head_dim / 8;  // of 16 bytes
    for (int head = q_head; head < q_head + cfg.heads_per_tile; ++head) {
      auto* out = static_cast<typename S::Element*>(params_.out_data) + head * params_.out_head_stride;
      for (int i = lane_; i < q_count * kChunks; i += 32) {
        const int64_t token = q_begin + i / kChunks;
        *reinterpret_cast<int4*>(out + token * params_.out_token_stride + i % kChunks * 8) = int4{};
      }
      if (params_.lse_log2 == nullptr) continue;
      for (int i = lane_; i < q_count; i += 32)
        params_.lse_log2[head * params_.lse_tokens + q_begin + i] = -INFINITY;
    }
  }

  const AttendParams& params_;
  S& stream_;
  const int lane_;
  WorkStream rows_;
  int before_ = 0;  // pieces, or halves of a block, that the row's first step leaves out
  Ring<2> buffer_;
  Ring<S::kSlots> slot_;     // of keys and values of q's dtype
  Ring<S::kKeySlots> key8_;  // of e4m3
  Ring<S::kValueSlots> value8_;
};

}  // namespace routerelay::cuda
