// SPDX-License-Identifier: Apache-2.0
// The key tiles of a row, counted from the front of its list.
#pragma once

#include "cuda/attend/config.h"
#include "cuda/attend/params.h"

namespace routerelay::cuda {

template <AttendConfig cfg, int kKeys>
class KeyTiles {
  static constexpr int kPieces = cfg.k_block / kKeys;  // tiles of a block

 public:
  __device__ KeyTiles(const AttendParams& params, const Work& work)
      : list_(params.picked == nullptr ? nullptr : params.picked + work.list) {
    int32_t blocks = work.blocks;
    while (blocks > 0 && block(blocks - 1) * cfg.k_block >= work.keys) --blocks;  // that no query sees
    count_ = blocks * kPieces;
    if (count_ == 0) return;
    // Of the last one, tiles that none sees.
    const int32_t unseen = (block(blocks - 1) + 1) * cfg.k_block - work.keys;
    count_ -= max(0, unseen) / kKeys;
  }
  __device__ int count() const { return count_; }
  // In the sequence. Before the first tile: that of the first.
  __device__ __forceinline__ int32_t first_key(int tile) const {
    const int i = max(0, tile);
    return block(i / kPieces) * cfg.k_block + i % kPieces * kKeys;
  }

 private:
  __device__ __forceinline__ int32_t block(int i) const { return list_ == nullptr ? i : list_[i]; }

  const int32_t* list_;
  int32_t count_ = 0;
};

}  // namespace routerelay::cuda
