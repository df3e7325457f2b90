// SPDX-License-Identifier: Apache-2.0
// One row on sm_80: every warp holds the outputs of its own 16 or 32 queries in registers; tiles of keys and of values
// pass by in shared memory, in turns, while the next ones arrive.
#pragma once

#include "cuda/attend/params.h"
#include "cuda/attend/sm80/list.cuh"
#include "cuda/attend/sm80/softmax.cuh"
#include "cuda/attend/sm80/tile.cuh"
#include "cuda/isa/ldmatrix.cuh"
#include "cuda/isa/mma.cuh"

namespace routerelay::cuda {

template <AttendConfig cfg>
class Sm80Row {
  using S = Sm80Layout<cfg>;
  using Element = typename S::Element;
  using Tile = Sm80Tile<S::D>;
  static constexpr int D = S::D, kKeys = S::kKeys, kRowTiles = S::kRowTiles;
  static constexpr int kAhead = S::kSlots - 1;  // tiles that are on their way while one is read

 public:
  __device__ Sm80Row(const AttendParams& params, char* shared, const Work& work)
      : params_(params),
        shared_(shared),
        work_(work),
        tiles_(params, work),
        first_keys_(first_of(params.k_view)),
        first_values_(first_of(params.v_view)),
        keys_(work.keys),
        position_(work.position),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {}

  // From the last tile to the first, so that those which queries see in part come first.
  __device__ void run() {
    int tile = tiles_.count() - 1;
    Place at, next;  // of this tile and of the one to come
    if (tile >= 0) {
      at = place_of(tile), next = place_of(tile - 1);
      load_queries();
      load_keys(tile, at);
      if (kAhead == 2) load_values(tile, at);
    }
    for (; tile >= 0; --tile) {
      const int keys = next_slot();
      if constexpr (kAhead == 2)
        load_keys(tile - 1, next);
      else
        load_values(tile, at);
      float score[kRowTiles][kKeys / 8][4] = {};
      add_scores(keys, score);
      if (at.key + kKeys > seen_by(0)) hide_unseen(at.key, score);
      float factor[kRowTiles][2];
      uint32_t weight[kRowTiles][kKeys / 16][4];
      const bool moved = softmax_.weigh(score, params_.scale_log2, weight, factor);
      if (__any_sync(~0u, moved)) rescale(factor);
      const int values = next_slot();
      if constexpr (kAhead == 2)
        load_values(tile - 1, next);
      else
        load_keys(tile - 1, next);
      at = next, next = place_of(tile - 2);
      add_values(values, weight);
    }
    write_output();
  }

 private:
  static constexpr int kPieces = kKeys / kPieceRows;  // of a tile

  // Where a tile begins in the sequence, and the page of its piece lane_ % kPieces.
  struct Place {
    int32_t key = 0, page = 0;
  };

  // A tile before the first is the first.
  __device__ __forceinline__ Place place_of(int tile) const {
    Place place{tiles_.first_key(tile)};
    const int32_t key = place.key + lane_ % kPieces * kPieceRows;
    if (params_.page_table != nullptr && key < keys_)
      place.page = params_.page_table[work_.sequence * params_.max_pages + (key >> params_.page_bits)];
    return place;
  }

  __device__ const Element* first_of(const TensorView& view) const {
    const int32_t begin = params_.page_table == nullptr ? work_.k_begin : 0;
    return static_cast<const Element*>(view.data) +
           work_.q_head / params_.heads_per_kv_head * view.head_stride + begin * view.token_stride;
  }

  __device__ __forceinline__ void load_keys(int tile, Place place) {
    load(tile, params_.k_view, first_keys_, place);
  }
  __device__ __forceinline__ void load_values(int tile, Place place) {
    load(tile, params_.v_view, first_values_, place);
  }
  // Asks for a tile, which is to come into the next slot of the ring. Before the row's first: for nothing.
  __device__ __forceinline__ void load(int tile, const TensorView& view, const Element* first, Place place) {
    const auto piece = [&](int i) {
      const int32_t page = __shfl_sync(~0u, place.page, i);
      const int32_t token = (place.key + i * kPieceRows) & ((1 << params_.page_bits) - 1);
      return first + page * view.page_stride + token * view.token_stride;
    };
    // What no query of the row sees may be anything, NaN too, and lie outside of the tensor.
    if (tile >= 0)
      Tile::template copy<kKeys, S::kThreads>(shared_ + S::slot(free_slot_), threadIdx.x, piece,
                                              view.token_stride, keys_ - place.key);
    end_copies();
    free_slot_ = free_slot_ + 1 == S::kSlots ? 0 : free_slot_ + 1;
  }

  // The oldest tile on its way has arrived, and nobody reads the one before it any more.
  __device__ __forceinline__ int next_slot() {
    wait_for_copies<kAhead - 1>();
    __syncthreads();
    const int slot = S::slot(slot_);
    slot_ = slot_ + 1 == S::kSlots ? 0 : slot_ + 1;
    return slot;
  }

  // A warp brings its own queries, with the group of the first keys.
  __device__ void load_queries() {
    const int first = warp_ * S::kWarpRows;
    const TensorView& q = params_.q_view;
    const auto* from = static_cast<const Element*>(q.data) + work_.q_head * q.head_stride +
                       (work_.q_begin + first) * q.token_stride;
    Tile::template copy<S::kWarpRows, 32>(
        shared_ + S::query(warp_), lane_, [&](int i) { return from + i * kPieceRows * q.token_stride; },
        q.token_stride, work_.q_count - first);
  }

  // score += queries x keys, 16 dims at a time.
  __device__ __forceinline__ void add_scores(int keys, float (&score)[kRowTiles][kKeys / 8][4]) {
    const int query_at = S::query(warp_) + Tile::at(lane_ % 16, lane_ / 16);
    const int key_at = keys + Tile::at(lane_ / 16 * 8 + lane_ % 8, lane_ / 8 % 2);
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t query[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        load_matrices(shared_ + Tile::moved(query_at, 2 * d) + 16 * m * Tile::kRowBytes, query[m]);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t key[4];
        load_matrices(shared_ + Tile::moved(key_at, 2 * d) + 16 * n * Tile::kRowBytes, key);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply_add<Element>(score[m][2 * n], query[m], key[0], key[1]);
          multiply_add<Element>(score[m][2 * n + 1], query[m], key[2], key[3]);
        }
      }
    }
  }

  // output += weights x values, 16 keys at a time.
  __device__ __forceinline__ void add_values(int values, const uint32_t (&weight)[kRowTiles][kKeys / 16][4]) {
    const int value_at = values + Tile::at(lane_ % 16, lane_ / 16);
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32_t value[4];
        load_matrices_transposed(shared_ + Tile::moved(value_at, 2 * d) + 16 * n * Tile::kRowBytes, value);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply_add<Element>(output_[m][2 * d], weight[m][n], value[0], value[1]);
          multiply_add<Element>(output_[m][2 * d + 1], weight[m][n], value[2], value[3]);
        }
      }
    }
  }

  // How many of the sequence's keys query `row` of this warp sees.
  __device__ __forceinline__ int seen_by(int row) const {
    return params_.causal ? min(position_ + warp_ * S::kWarpRows + row + 1, keys_) : keys_;
  }

  __device__ __forceinline__ void hide_unseen(int32_t first_key, float (&score)[kRowTiles][kKeys / 8][4]) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int seen = seen_by(16 * m + 8 * row + lane_ / 4) - first_key - lane_ % 4 * 2;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (8 * j + i >= seen) score[m][j][2 * row + i] = -INFINITY;
      }
  }

  __device__ __forceinline__ void rescale(const float (&factor)[kRowTiles][2]) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int j = 0; j < D / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) output_[m][j][i] *= factor[m][i / 2];
  }

  // Over the warp's own queries, which it has done with, and from there in whole chunks to device memory.
  __device__ void write_output() {
    const int first = warp_ * S::kWarpRows;
    char* tile = shared_ + S::query(warp_);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + 8 * half + lane_ / 4;
        float lse_log2;
        const float inverse = softmax_.finish(m, half, lse_log2);
        if (params_.lse_log2 != nullptr && lane_ % 4 == 0 && first + row < work_.q_count)
          params_.lse_log2[work_.q_head * params_.lse_tokens + work_.q_begin + first + row] = lse_log2;
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
          *reinterpret_cast<uint32_t*>(tile + Tile::at(row, j) + lane_ % 4 * 4) =
              packed<Element>(output_[m][j][2 * half] * inverse, output_[m][j][2 * half + 1] * inverse);
      }
    __syncwarp();
    auto* out = static_cast<Element*>(params_.out_data) + work_.q_head * params_.out_head_stride;
#pragma unroll 4
    for (int i = lane_; i < S::kWarpRows * Tile::kChunks; i += 32) {
      const int row = i / Tile::kChunks, chunk = i % Tile::kChunks;
      if (first + row < work_.q_count)
        *reinterpret_cast<int4*>(out + (work_.q_begin + first + row) * params_.out_token_stride + chunk * 8) =
            *reinterpret_cast<const int4*>(tile + Tile::at(row, chunk));
    }
  }

  const AttendParams& params_;
  char* const shared_;
  const Work& work_;
  const KeyTiles<cfg, kKeys> tiles_;
  const Element *const first_keys_, *const first_values_;  // of the sequence or of page 0, for this head
  const int32_t keys_, position_;                          // as in work_
  const int warp_, lane_;
  int slot_ = 0, free_slot_ = 0;  // that are read and filled next
  RunningSoftmax<Element, kRowTiles> softmax_;
  float output_[kRowTiles][D / 8][4] = {};
};

}  // namespace routerelay::cuda
