// SPDX-License-Identifier: Apache-2.0
// What crosses layers: per (query head, row) the route, its challengers and its age. Integers only.
#pragma once

#include <cstdint>
#include <vector>

#include "core/routes.h"
#include "routerelay/report.hpp"

namespace routerelay {

// List index: q_head * n_rows + row. A dense row's route is every visible block.
struct Ledger {
  bool empty = true;         // no routed layer yet
  BlockLists route;          // forced blocks included: geometry tells which they are
  BlockLists near;           // best blocks below the cut
  BlockLists probes;         // random challengers (strict, mass, repair)
  std::vector<uint8_t> age;  // layers since the row was scored in full, 255 and more alike
  std::vector<int32_t>
      scored;  // blocks that the costly router scored at this layer, relay's rescoring included
  std::vector<uint16_t> swaps;  // blocks that entered by re-ranking since then

  void reset() { *this = Ledger{}; }
};

// What relay says of a row.
enum class Kind : uint8_t {
  kDense,       // the row sees every block and is not routed
  kAll,         // score every visible block
  kCandidates,  // score the listed blocks only
  kCertify,     // score every visible block; the ledger's blocks give a cut that spares most of the sorting
  kKeep,        // the ledger's route still holds
};

struct Proposal {
  std::vector<Kind> kind;         // [q_heads * n_rows]
  std::vector<Cause> cause;       // [q_heads * n_rows]: why kAll; kNone for candidates and kept rows
  std::vector<int32_t> rescored;  // [q_heads * n_rows]: blocks the costly router scored for relay; or empty
  BlockLists candidates;          // empty lists where kind is not kCandidates
};

}  // namespace routerelay
