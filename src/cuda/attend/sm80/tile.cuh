// SPDX-License-Identifier: Apache-2.0
// Tiles of the sm_80 attend kernel: how large, where they lie in shared memory, how they come there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cuda/attend/config.h"
#include "cuda/isa/cp_async.cuh"

namespace routerelay::cuda {

inline constexpr int kPieceRows = 16;  // of a tile, that lie side by side: the smallest page

// Rows of D 16-bit elements. Of each row's 16-byte chunks, groups of eight are permuted by the row's number, so that
// eight rows at one chunk, as ldmatrix reads them, lie in different banks.
template <int D>
struct Sm80Tile {
  static constexpr int kChunks = D / 8, kRowBytes = D * 2;

  // Where a chunk lies, in bytes from the tile's begin, which is a multiple of kAlign.
  static __device__ __forceinline__ int at(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
  }
  // Of an address at(row, chunk): that of the chunk `chunks`, a multiple of 2, behind its chunk 0 or 1.
  static __device__ __forceinline__ int moved(int at, int chunks) { return at ^ (chunks << 4); }

  // Rows 0 .. n - 1, `stride` elements apart, by kThreads threads of which this is `thread`. Each kPieceRows of them
  // begin at piece(0), piece(1) and so on. From `rows_there` on they become zeros.
  template <int n, int kThreads, class Piece>
  static __device__ __forceinline__ void copy(char* tile, int thread, Piece&& piece, int64_t stride,
                                              int rows_there) {
    constexpr int kStep = kThreads / kChunks;
    static_assert(kThreads % kChunks == 0 && n % kPieceRows == 0 && kPieceRows % kStep == 0);
    const int row = thread / kChunks, chunk = thread % kChunks;
    const int64_t within = row * stride + chunk * 8;
#pragma unroll
    for (int i = 0; i < n; i += kPieceRows) {
      const auto* from = piece(i / kPieceRows) + within;
#pragma unroll
      for (int j = 0; j < kPieceRows; j += kStep) {
        copy_chunk(tile + at(row + i + j, chunk), from, row + i + j < rows_there);
        from += kStep * stride;
      }
    }
  }
};

template <AttendConfig cfg>
struct Sm80Layout {
  static_assert(cfg.heads_per_tile == 1);
  using Element = std::conditional_t<cfg.dtype == DType::kBF16, __nv_bfloat16, __half>;
  static constexpr int D = cfg.head_dim;
  // Of 16 queries, a warp: two share each fragment of keys and values, where registers hold their output.
  static constexpr int kRowTiles = cfg.q_block > 64 && D <= 128 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles, kWarps = cfg.q_block / kWarpRows;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kKeys = D <= 128 ? 64 : 32;  // of a tile
  // Tiles of keys and of values in turns. D 128, rows of 128: 32 + 3 x 16 KiB, so that two CTAs share an A100's
  // multiprocessor; none takes more than the 99 KiB of the consumer cards.
  static constexpr int kSlots = D > 128 && cfg.q_block > 64 ? 2 : 3;

  // Begin of a warp's queries, which become its outputs, and of a slot, in bytes.
  static constexpr int kQueryBytes = kWarpRows * D * 2, kSlotBytes = kKeys * D * 2;
  static constexpr int kBytes = kWarps * kQueryBytes + kSlots * kSlotBytes;
  static __device__ __forceinline__ int query(int warp) { return warp * kQueryBytes; }
  static __device__ __forceinline__ int slot(int i) { return kWarps * kQueryBytes + i * kSlotBytes; }
};

}  // namespace routerelay::cuda
