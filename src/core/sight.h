// SPDX-License-Identifier: Apache-2.0
// What a row's mask says of a block. A header of its own: kernels read it and must share no inline functions.
#pragma once

#include <cstdint>

namespace routerelay {

// Causality is the geometry's business: a block at the diagonal may be kAll.
enum class Sight : uint8_t { kNone, kSome, kAll };

}  // namespace routerelay
