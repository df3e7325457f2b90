// SPDX-License-Identifier: Apache-2.0
// What one row of one head, or of two that share a tile, asks of the attend kernel, as order.cu writes it and kernels
// read it.
#pragma once

#include <cstdint>

namespace routerelay::cuda {

// Tokens are 32-bit here: check() refuses tensors of 2^31 tokens.
struct alignas(16) Work {
  int64_t list = 0;      // its first entry in `picked`; unused when every visible block is visited
  int32_t blocks = 0;    // to visit; 0: the row sees nothing
  int32_t q_head = 0;    // the first
  int32_t q_begin = 0;   // its first query token in q and out
  int32_t q_count = 0;   // 1 .. q_block
  int32_t position = 0;  // of its first query, in the sequence
  int32_t keys = 0;      // that its last query sees
  int32_t k_begin = 0;   // the sequence's first key token in k and v
  int32_t sequence = 0;
  int32_t spare[2] = {};  // to three 16-byte loads
};
static_assert(sizeof(Work) == 48);

// Rows much longer than their group's mean lie in the first kMaxFirst places, as many as there are, and begin before
// all others.
inline constexpr int kMaxFirst = 1024;

// In device memory, 0 before a call.
struct WorkCounts {
  int32_t next = 0;   // items taken so far, the first of each CTA not counted
  int32_t first = 0;  // items in the first places; may count more than there is room for
};

}  // namespace routerelay::cuda
