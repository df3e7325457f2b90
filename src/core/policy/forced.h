// SPDX-License-Identifier: Apache-2.0
// Which blocks a row attends whatever their score, and how many it may pick besides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/rows.h"
#include "routerelay/options.hpp"

namespace routerelay {

// The sink, and everything from the local window to the diagonal: [0, sink) and [local, visible_blocks).
struct Forced {
  int32_t sink = 0;
  int32_t local = 0;
  int32_t visible = 0;

  static Forced of(const Row& row, const Options& options) {
    Forced f;
    f.visible = row.visible_blocks;
    f.local = options.force_diagonal ? std::max(0, row.diagonal - options.local_blocks) : f.visible;
    f.sink = std::min(options.sink_blocks, f.local);
    return f;
  }
  bool holds(int32_t block) const { return block < sink || block >= local; }
  int32_t count() const { return sink + visible - local; }
};

// c: the least number of blocks in a route, forced ones included.
inline int32_t floor_count(const Row& row, const SelectionOptions& selection) {
  const auto share = static_cast<int32_t>(std::lround(selection.floor * row.visible_blocks));
  return std::min(std::max(selection.least, share), row.visible_blocks);
}

}  // namespace routerelay
