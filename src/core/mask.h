// SPDX-License-Identifier: Apache-2.0
// What the masks of a call leave of each row, block by block. Read on every call: a cache's owner shifts and overwrites
// its cells without notice.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/exec.h"
#include "core/routes.h"
#include "core/rows.h"
#include "core/sight.h"
#include "routerelay/engine.hpp"

namespace routerelay {

struct MaskedRows {
  std::span<const Mask> masks;   // one per sequence
  std::vector<int64_t> offsets;  // [rows + 1] into sights
  std::vector<Sight> sights;     // of each row's visible blocks
  BlockLists shown;              // per row, whatever the head: the blocks that are not kNone

  std::span<const Sight> of(int64_t row) const {
    const auto begin = static_cast<size_t>(offsets[static_cast<size_t>(row)]);
    return {sights.data() + begin, static_cast<size_t>(offsets[static_cast<size_t>(row) + 1]) - begin};
  }
};

// Query `token` of q, which the row holds, in the row's mask: [k_len] f16.
const uint16_t* mask_of(const Row& row, const Rows& rows, std::span<const Mask> masks, int64_t token);

// The rows' sequences have one mask each. kUnsupported names the first value that is neither 0 nor -inf.
Status read_masks(std::span<const Mask> masks, const Rows& rows, Exec& exec, MaskedRows& out);

}  // namespace routerelay
