// SPDX-License-Identifier: Apache-2.0
// Makers of routes: every visible block, a random share of them, or lists written out by a test.
#pragma once

#include <vector>

#include "core/rng.h"
#include "core/routes.h"
#include "core/rows.h"

namespace routerelay::support {

// `pick(q_head, row, block)` says which visible blocks are in the route; any row may end up empty.
template <class Pick>
Routes make_routes(const Rows& rows, int64_t q_heads, const Pick& pick) {
  Routes routes;
  routes.lists.offsets.push_back(0);
  for (int64_t h = 0; h < q_heads; ++h)
    for (int64_t r = 0; r < rows.size(); ++r) {
      for (int32_t b = 0; b < rows.rows[static_cast<size_t>(r)].visible_blocks; ++b)
        if (pick(h, r, b)) routes.lists.ids.push_back(b);
      routes.lists.offsets.push_back(static_cast<int64_t>(routes.lists.ids.size()));
    }
  return routes;
}

// No list at all: attend sees every visible block.
inline Routes full_routes() {
  Routes routes;
  routes.full = true;
  return routes;
}

// Every visible block, written out.
inline Routes listed_full_routes(const Rows& rows, int64_t q_heads) {
  return make_routes(rows, q_heads, [](int64_t, int64_t, int32_t) { return true; });
}

// Each visible block with probability `share`; the diagonal always, as in every route that the engine makes.
inline Routes random_routes(const Rows& rows, int64_t q_heads, double share, uint64_t seed) {
  Philox random(seed, 77);
  return make_routes(rows, q_heads, [&](int64_t, int64_t r, int32_t b) {
    const bool drawn = random.uniform() < share;
    return drawn || b >= rows.rows[static_cast<size_t>(r)].diagonal;
  });
}

}  // namespace routerelay::support
