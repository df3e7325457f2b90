// SPDX-License-Identifier: Apache-2.0
// Boxes of a [pages, heads, tokens, head_dim] tensor between device and shared memory, by the tensor copy engine
// (sm_90). A box is 64 elements of head_dim wide, so that its rows are the 128 bytes of the widest swizzle.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cute/arch/copy_sm90_tma.hpp>

#include "cuda/isa/barrier.cuh"

namespace routerelay::cuda {

inline constexpr int kBoxDims = 64;

// Where a box begins.
struct BoxAt {
  int32_t dim = 0, token = 0, head = 0, page = 0;
};

// Keys and values are read again by other rows; queries and outputs are touched once.
inline constexpr auto kKeepInL2 = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST);
inline constexpr auto kPassThroughL2 = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);

// Tokens outside the tensor arrive as zeros and cost no memory traffic. The barrier counts the whole box either way.
__device__ inline void load_box(const CUtensorMap& map, Barrier& full, uint64_t hint, void* shared,
                                BoxAt at) {
  cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<uint64_t*>(&full), hint, shared, at.dim, at.token,
                               at.head, at.page);
}
__device__ inline void store_box(const CUtensorMap& map, const void* shared, BoxAt at) {
  cute::SM90_TMA_STORE_4D::copy(&map, shared, at.dim, at.token, at.head, at.page);
}
// Closes the stores issued so far by this thread, and waits until their sources may be overwritten.
__device__ inline void wait_until_stores_have_read() {
  cute::tma_store_arrive();
  cute::tma_store_wait<0>();
}

// Byte offset of 16-byte chunk `chunk` (0..7) of row `row` in a box of 128-byte rows that begins at a multiple of 1024.
__device__ inline int swizzled(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

}  // namespace routerelay::cuda
