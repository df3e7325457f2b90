// SPDX-License-Identifier: Apache-2.0
#include "mask.h"

#include <cstring>

#include "core/assert.h"

namespace routerelay::ggml {
namespace {

// A compare per 32 halves, joined without branches: the compiler vectorises it, and the mask of a 512-row chunk
// at 8K keys (8 MiB) goes by at memory speed, once per layer.
constexpr int64_t kStep = 32;

bool all_equal(const uint16_t* p, int64_t n, uint16_t value) {
  const uint64_t wanted = 0x0001000100010001u * value;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    uint64_t words[kStep / 4], different = 0;
    std::memcpy(words, p + i, sizeof words);
    for (const uint64_t word : words) different |= word ^ wanted;
    if (different != 0) return false;
  }
  for (; i < n; ++i)
    if (p[i] != value) return false;
  return true;
}

int64_t leading_zeros(const uint16_t* p, int64_t n) {
  int64_t i = 0;
  while (i + kStep <= n && all_equal(p + i, kStep, kHalfZero)) i += kStep;
  while (i < n && p[i] == kHalfZero) ++i;
  return i;
}

}  // namespace

std::optional<CausalChunk> causal_chunk(const MaskView& mask) {
  RR_ASSERT(mask.row_stride >= mask.n_keys);
  CausalChunk chunk;
  chunk.first_visible = mask.rows > 0 ? leading_zeros(mask.data, mask.n_keys) : 0;
  chunk.last_visible = chunk.first_visible + mask.rows - 1;
  for (int64_t r = 0; r < mask.rows; ++r) {
    const uint16_t* row = mask.data + r * mask.row_stride;
    const int64_t visible = chunk.first_visible + r;
    const bool prefix = visible >= 1 && visible <= mask.n_keys && all_equal(row, visible, kHalfZero) &&
                        all_equal(row + visible, mask.n_keys - visible, kHalfMinusInf);
    if (!prefix) return std::nullopt;
  }
  return chunk;
}

}  // namespace routerelay::ggml
