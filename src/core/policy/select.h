// SPDX-License-Identifier: Apache-2.0
// Scores of a row's blocks -> its route and the challengers below the cut. The one definition for every back
// end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/policy/forced.h"
#include "core/rows.h"
#include "routerelay/options.hpp"

namespace routerelay {

// The scored blocks of a row. Forced blocks may be among the ids or not; they are in every route.
struct ScoredBlocks {
  std::span<const int32_t> ids;   // ascending
  std::span<const float> score;   // NaN ranks last
  std::span<const float> rescue;  // ball: the second mask's scores; else empty
};

// Buffers that live as long as a thread, so that a row allocates nothing.
struct SelectScratch {
  std::vector<uint64_t> ranked;  // competitors and forced blocks, best first: (score, smaller id first)
  std::vector<uint8_t> picked;   // by position in `ids`
  std::vector<float> estimate;
};

struct Selected {
  std::vector<int32_t> route;  // ascending, forced blocks included
  std::vector<int32_t> near;   // ascending: the best below the cut, at most the number asked for
  int32_t competitors = 0;     // blocks of the route that are not forced
};

// How many challengers a route of `competitors` blocks keeps, and how many random ones.
struct Challengers {
  int32_t near = 0;
  int32_t probes = 0;
};
Challengers challengers_of(const RelayOptions& relay, int32_t competitors, int32_t floor_count);

// Fills `out`. near is cut to challengers_of(...).near.
void select_blocks(const Row& row, const Options& options, const ScoredBlocks& blocks, SelectScratch& scratch,
                   Selected& out);

// Ranks `ids` by score (descending, id ascending) and appends the best `count` to `out` in that order.
void best_blocks(std::span<const int32_t> ids, std::span<const float> score, int32_t count,
                 std::vector<uint64_t>& ranked, std::vector<int32_t>& out);

}  // namespace routerelay
