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

// Scored blocks by (score descending, position ascending), NaN last. Only as many as somebody asks for are sorted: a
// route and its challengers are a fifth of a long row.
class Ranking {
 public:
  void begin(std::span<const float> score);
  uint32_t size() const { return static_cast<uint32_t>(keys_.size()); }
  // How many ranks the first request for an unsorted one sorts at least.
  void expect(int32_t count) { step_ = count > 1 ? static_cast<size_t>(count) : 1; }
  // Position among the scores of the block with this rank.
  uint32_t at(uint32_t rank) {
    if (rank >= sorted_) sort_up_to(rank);
    return 0xffffffffu - static_cast<uint32_t>(keys_[rank]);
  }
  // The best `count`, in any order, as keys for position_of.
  std::span<const uint64_t> best(uint32_t count);
  static uint32_t position_of(uint64_t key) { return 0xffffffffu - static_cast<uint32_t>(key); }

 private:
  void sort_up_to(size_t rank);
  std::vector<uint64_t> keys_;  // rank order up to sorted_, then any
  size_t sorted_ = 0;
  size_t step_ = 1;
};

// Buffers that live as long as a thread, so that a row allocates nothing.
struct SelectScratch {
  Ranking ranking;
  std::vector<uint8_t> picked;  // by position in `ids`; 1 for competitors of the route
  std::vector<float> weight;    // by position: what mass is estimated by
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

// Sets marks[id] of the best `count` of `ids` by (score descending, id ascending).
void mark_best(std::span<const int32_t> ids, std::span<const float> score, int32_t count, Ranking& ranking,
               std::span<uint8_t> marks);

}  // namespace routerelay
