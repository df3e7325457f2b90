// SPDX-License-Identifier: Apache-2.0
// Shared memory of the sm_90 attend kernel: two query tiles, a ring of slots for key and value tiles, and the barriers
// between the loader warp, the two consumer warpgroups and the storer warp.
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
inline constexpr int kTileKeys = 128;     // keys of a slot: one 128-key block or two 64-key blocks

// First key of the missing second block of an odd list: past every query's sight and past every tensor's end.
inline constexpr int32_t kNoKey = 0x40000000;

// A row's queries see 127 keys more at its end than at its beginning: parts of two 128-key blocks or of three 64-key
// blocks, which with the gap of an odd list make two steps.
inline constexpr int kMaxMasked = 2;

// What consumers and storer know of the row in a query tile.
struct Tile {
  int32_t steps = 0;   // slots of keys to visit; 0: there are no more rows
  int32_t masked = 0;  // the first ones of them, where not every query sees every key
  int32_t q_head = 0;
  int32_t q_begin = 0;
  int32_t q_count = 0;
  int32_t position = 0;
  int32_t keys = 0;
  int32_t first_key[kMaxMasked][2] = {};  // of the blocks in each masked step; for a missing one: kNoKey
};

template <AttendConfig cfg>
struct Shared {
  using Element = std::conditional_t<cfg.dtype == DType::kBF16, __nv_bfloat16, __half>;
  static constexpr int D = cfg.head_dim, kBoxes = D / kBoxDims, kPieces = kTileKeys / cfg.k_block;
  static constexpr int kQueryBytes = kConsumers * kConsumerRows * D * 2, kSlotBytes = kTileKeys * D * 2;
  static constexpr int kLimit = 227 * 1024;  // of one CTA on sm_90
  static constexpr int kOthers = 1024;       // barriers, tiles and what alignment takes
  // D 128: 2 x 32 KiB of queries + 5 x 32 KiB. More than 8 slots were never full.
  static constexpr int kSlots = std::min(8, (kLimit - kOthers - 2 * kQueryBytes) / kSlotBytes);

  // Boxes: rows of 64 elements, swizzled; a tile of head_dim 128 is two boxes, dims 0..63 and 64..127.
  alignas(1024) Element query[2][kConsumers][kBoxes][kConsumerRows * kBoxDims];  // later the row's output
  alignas(1024) Element slot[kSlots][kBoxes][kTileKeys * kBoxDims];
  Barrier query_full[2], query_free[2];  // loader -> consumers and storer; storer -> loader
  Barrier out_full[2];                   // consumers -> storer
  Barrier slot_full[kSlots], slot_free[kSlots];
  Tile tile[2];
  int32_t misfit[kConsumers];  // a consumer's newest step is to be weighed again
};

template <AttendConfig cfg>
__device__ void set_up(Shared<cfg>& shared) {
  if (threadIdx.x < kConsumers) shared.misfit[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      shared.query_full[i].init(1);
      shared.query_free[i].init(1);
      shared.out_full[i].init(kConsumers * 4);
    }
    for (int i = 0; i < Shared<cfg>::kSlots; ++i) {
      shared.slot_full[i].init(1);
      shared.slot_free[i].init(kConsumers * 4);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
}

}  // namespace routerelay::cuda
