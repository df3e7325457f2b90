// SPDX-License-Identifier: Apache-2.0
// Runs the engine's own relay and route rules over given score matrices, layer by layer, and counts what they did.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/paper/drifting_scores.h"
#include "core/exec.h"
#include "core/ledger.h"
#include "core/rows.h"
#include "routerelay/options.hpp"
#include "routerelay/status.hpp"

namespace routerelay {

// What a run did, summed over layers.
struct RelayCounts {
  int64_t rows = 0;       // (row, layer) pairs
  int64_t rerouted = 0;   // of them scored in full
  int64_t pairs = 0;      // (row, block) pairs that the costly router scored
  int64_t screened = 0;   // pairs that screen's cheap router scored
  int64_t all_pairs = 0;  // what full routing scores
  int64_t certified_rows = 0;
  int64_t survivors = 0;  // certify: blocks left to sort, over certified_rows

  RelayCounts& operator+=(const RelayCounts& other);
};

// Every block competes: nothing is forced, nothing is causal, and the run starts with an empty ledger.
class RelayedRun {
 public:
  // `seed` draws the probes; `relay.seed` is replaced by it.
  RelayedRun(const Shape& shape, const RelayOptions& relay, uint64_t seed);

  // The next layer's scores, [rows, blocks] f32. `cheap` is asked by screen only and may be empty otherwise.
  Status layer(std::span<const float> costly, std::span<const float> cheap);
  // Ascending; of the last layer.
  std::span<const int32_t> route(int64_t row) const { return ledger_.route[row]; }
  const RelayCounts& counts() const { return counts_; }

 private:
  Shape shape_;
  Options options_;
  Rows rows_;
  ThreadPool pool_{1};  // many runs at once beat many threads in one: their rows are few
  Workspace workspace_;
  Ledger ledger_;
  RelayCounts counts_;
  int layer_ = 0;
};

}  // namespace routerelay
