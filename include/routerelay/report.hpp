// SPDX-License-Identifier: Apache-2.0
// What a Pass did, layer by layer: how much was skipped, why rows were scored again, what an audit found.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace routerelay {

// Why a row was scored in full, or that it was not. One list for relay, route and report.
enum class Cause : uint8_t {
  kNone,    // kept, or scored on candidates only
  kFirst,   // no ledger yet: relay off, or the first routed layer
  kAge,     // fixed, mass, repair: horizon reached
  kFired,   // strict, mass: a challenger won
  kProbe,   // repair: a random probe reached the route
  kSwaps,   // repair: too many swaps since the last full row
  kAnchor,  // screen: anchor layer; or a never-relay layer
  kShort,   // too few visible blocks for relaying to pay
  kDense,   // dense row: not routed at all
};
inline constexpr int kCauses = 9;
const char* name_of(Cause cause);

struct LayerReport {
  int layer = -1;                     // -1: unknown
  bool dense = false;                 // every row saw every block
  bool relayed = false;               // a ledger was read
  bool auto_off = false;              // relay had turned itself off
  int64_t rows = 0;                   // (query head, row) pairs
  int64_t routed_rows = 0;            // of them not dense
  int64_t kept_rows = 0;              // copied from the ledger
  int64_t visible_blocks = 0;         // causal (row, block) pairs, all rows
  int64_t visited_blocks = 0;         // of them attended
  int64_t routed_visible_blocks = 0;  // the same two over routed rows
  int64_t routed_visited_blocks = 0;
  int64_t scored_blocks = 0;    // pairs that the costly router scored, relay's rescoring included
  int64_t screened_blocks = 0;  // pairs that screen's cheap router scored
  int64_t swaps = 0;            // blocks that entered a route by re-ranking
  int64_t survivors = 0;        // certify: blocks at or above the certified cut
  std::array<int64_t, kCauses> rows_by_cause{};
  int64_t audited_rows = 0;
  double audited_id_recall = 0;  // sums over audited rows: divide by audited_rows
  double audited_mass_recall = 0;
  double summarize_us = 0, relay_us = 0, route_us = 0, attend_us = 0;  // wall clock
  int64_t summary_bytes = 0;
  int64_t workspace_bytes = 0;  // beyond q, k, v, out, summaries and routes
  int64_t kv_bytes_16bit = 0;   // what K and V take at 16 bits: the unit of the memory bars
};

struct Report {
  std::string preset;
  std::string backend;  // cpu, reference
  std::string isa;
  int threads = 0;
  std::vector<LayerReport> layers;

  // Visited causal (row, block) pairs over all causal pairs, routed rows only; 1 when none was routed.
  double density() const;
  // The same over every row of every layer, dense ones included.
  double model_density() const;
  // Costly scores computed over the scores of routing every row of every routed layer in full.
  double scored_share() const;
  // Means over audited rows; NaN when none was audited.
  double id_recall() const;
  double mass_recall() const;
  std::string to_json() const;
  std::string to_text() const;
};

}  // namespace routerelay
