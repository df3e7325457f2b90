// SPDX-License-Identifier: Apache-2.0
// What a mask says of a key, and of a block for a row. A header of its own: kernels read it and must share no inline
// functions.
#pragma once

#include <cstdint>

namespace routerelay {

// Causality is the geometry's business: a block at the diagonal may be kAll.
enum class Sight : uint8_t { kNone, kSome, kAll };

// Whether a mask's f16 shows the key: +0 or -0. Always inline, as every function that kernels share with others.
[[gnu::always_inline]] constexpr bool shows(uint16_t f16) {
  return (f16 & 0x7fff) == 0;
}

}  // namespace routerelay
