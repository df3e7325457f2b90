// SPDX-License-Identifier: Apache-2.0
// Shared memory of the sm_90 attend kernel: query tiles, a ring of slots for key and value tiles, and the barriers
// between loader warps, converter warps, consumer warpgroups and storer warps.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "cuda/attend/config.h"
#include "cuda/isa/barrier.cuh"
#include "cuda/isa/tma.cuh"

namespace routerelay::cuda {

inline constexpr int kConsumers = 2;      // warpgroups that compute
inline constexpr int kWarpgroup = 128;    // threads
inline constexpr int kConsumerRows = 64;  // queries of a consumer: what one wgmma is high
inline constexpr int kConverters = 2;     // warps that convert e4m3 values

// First key of the missing second block of an odd list: past every query's sight and past every tensor's end.
inline constexpr int32_t kNoKey = 0x40000000;

// How rows and blocks are cut. A tile of 128 queries, one row or one of each of two heads, is shared by both consumers;
// of tiles of 64, each has its own stream: its own loader, lists, slots and storer. A step multiplies 128 keys (one
// block, or two of 64) where they fit, else 64 (one block, or half of one).
template <AttendConfig cfg>
struct Cut {
  static_assert(cfg.heads_per_tile == 1 || (cfg.heads_per_tile == 2 && cfg.q_block == kConsumerRows),
                "a consumer has 64 queries of one head");
  static constexpr int kStreams = tile_queries(cfg) == kConsumerRows ? 2 : 1;
  static constexpr int kConsumersEach = kConsumers / kStreams;
  // From one consumer's part of a tile to the next: another head, or the row's next queries.
  static constexpr int kHeadStep = cfg.heads_per_tile - 1,
                       kQueryStep = cfg.heads_per_tile == 1 ? kConsumerRows : 0;
  static constexpr int kStepKeys = step_keys(cfg), kPieceKeys = piece_keys(cfg);
  static constexpr int kPieces = kStepKeys / kPieceKeys;    // blocks of a step
  static constexpr int kHalves = cfg.k_block / kPieceKeys;  // steps of a block
  // A row's queries see q_block - 1 keys more at its end than at its beginning, which lie in so many steps. Blocks of
  // 64 keys two by two could need three halves of steps, and the gap of an odd list: two steps again.
  static constexpr int kMaxMasked = kStepKeys == 128 ? 2 : cfg.q_block / 64 + 1;
};

// What consumers and storer know of the row, or rows, in a query tile.
template <AttendConfig cfg>
struct Tile {
  int32_t steps = 0;   // to visit; 0: there are no more rows
  int32_t masked = 0;  // the first ones of them, where not every query sees every key
  int32_t ragged = 0;  // the first ones of them, where a block has keys that no query sees
  int32_t q_head = 0;  // of several, the first
  int32_t q_begin = 0;
  int32_t q_count = 0;
  int32_t position = 0;
  int32_t keys = 0;
  // Of the blocks in each masked step; for a missing one: kNoKey.
  int32_t first_key[Cut<cfg>::kMaxMasked][Cut<cfg>::kPieces] = {};
};

// e4m3 keys and values arrive in rings of their own. Keys are multiplied as they are, by queries in two parts; values
// are converted, since wgmma takes none that lie with a token's elements side by side.
template <AttendConfig cfg>
struct QuantisedRings {
  static constexpr int kKeySlots = 4, kValueSlots = 2, kTileBytes = Cut<cfg>::kStepKeys * cfg.head_dim;
  static_assert(cfg.head_dim == 128 && cfg.q_block == 128,
                "a token is one row of a box; two warps are free to convert");

  alignas(1024) uint8_t key8[kKeySlots][kTileBytes];
  alignas(1024) uint8_t value8[kValueSlots][kTileBytes];
  Barrier key8_full[kKeySlots], key8_free[kKeySlots];          // loader -> consumers; consumers -> loader
  Barrier value8_full[kValueSlots], value8_free[kValueSlots];  // loader -> converters; converters -> loader
  // Of each query tile.
  float key_scale[2], value_scale[2];
  float score_scale_log2[2][kConsumers][kConsumerRows];  // of each of its queries
};
struct NoRings {
  static constexpr int kKeySlots = 1, kValueSlots = 1;  // never used
};

template <AttendConfig cfg>
struct Stream : std::conditional_t<is_quantised(cfg), QuantisedRings<cfg>, NoRings> {
  using Element =
      std::conditional_t<cfg.dtype == DType::kBF16, __nv_bfloat16, __half>;  // of queries and output
  // Of probabilities and values. f16 holds e4m3 exactly and is one conversion away from it, bf16 is four.
  using Weight = std::conditional_t<is_quantised(cfg), __half, Element>;
  static constexpr int D = cfg.head_dim, kBoxes = D / kBoxDims;
  static constexpr int kStreams = Cut<cfg>::kStreams, kStepKeys = Cut<cfg>::kStepKeys;
  static constexpr int kConsumersEach = Cut<cfg>::kConsumersEach;
  static constexpr int kQueryBytes = kConsumersEach * kConsumerRows * D * 2, kSlotBytes = kStepKeys * D * 2;
  static constexpr int kLimit = 227 * 1024;  // of one CTA on sm_90
  static constexpr int kOthers = 1536;       // barriers, tiles and what alignment takes
  static constexpr int kKeyBoxes = is_quantised(cfg) ? 1 : kBoxes;  // that a key arrives in
  // D 128: 2 x 32 KiB of queries, then 5 x 32 KiB or twice 5 x 16 KiB. More than 8 slots were never full. Beside the
  // rings of e4m3 there is room for two: values in use, and values in the making.
  static constexpr int kSlots =
      is_quantised(cfg)
          ? 2
          : std::min(8, (kLimit - kOthers) / kStreams / kSlotBytes - 2 * kQueryBytes / kSlotBytes);
  static_assert(kSlots >= 3 || is_quantised(cfg), "two key tiles and a value tile are in use at a time");

  // Boxes: rows of 64 elements, swizzled; a tile of head_dim 128 is two boxes, dims 0..63 and 64..127.
  alignas(1024) Element query[2][kConsumersEach][kBoxes][kConsumerRows * kBoxDims];  // later the row's output
  alignas(1024) Weight slot[kSlots][kBoxes][kStepKeys * kBoxDims];
  Barrier query_full[2], query_free[2];  // loader -> all who read its Tile; storer and converters -> loader
  Barrier out_full[2];                   // consumers -> storer
  Barrier slot_full[kSlots], slot_free[kSlots];  // loader, or converters -> consumers; and back
  Tile<cfg> tile[2];
  // A consumer's step is to be weighed again: of even and odd steps, since a warp may say it of the next step before
  // another has asked about this one.
  int32_t misfit[kConsumersEach][2];
};

template <AttendConfig cfg>
struct Shared {
  Stream<cfg> stream[Cut<cfg>::kStreams];
};

template <AttendConfig cfg>
__device__ void set_up(Shared<cfg>& shared) {
  constexpr int kConsumerWarps = Cut<cfg>::kConsumersEach * kWarpgroup / 32;
  constexpr int kGivers = 1 + (is_quantised(cfg) ? kConverters : 0);  // warps that give a query tile back
  if (threadIdx.x < Cut<cfg>::kStreams) {
    Stream<cfg>& stream = shared.stream[threadIdx.x];
    for (auto& misfit : stream.misfit) misfit[0] = misfit[1] = 0;
    for (int i = 0; i < 2; ++i) {
      stream.query_full[i].init(1);
      // Every lane arrives for what it read and wrote itself: racecheck follows no __syncwarp to a lane that arrives
      // for all.
      stream.query_free[i].init(kGivers * 32);
      stream.out_full[i].init(kConsumerWarps * 32);
    }
    for (int i = 0; i < Stream<cfg>::kSlots; ++i) {
      stream.slot_full[i].init(is_quantised(cfg) ? kConverters : 1);
      stream.slot_free[i].init(kConsumerWarps);
    }
    if constexpr (is_quantised(cfg)) {
      for (int i = 0; i < stream.kKeySlots; ++i) {
        stream.key8_full[i].init(1);
        stream.key8_free[i].init(kConsumerWarps);
      }
      for (int i = 0; i < stream.kValueSlots; ++i) {
        stream.value8_full[i].init(1);
        stream.value8_free[i].init(kConverters);
      }
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
}

}  // namespace routerelay::cuda
