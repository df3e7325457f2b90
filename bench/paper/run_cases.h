// SPDX-License-Identifier: Apache-2.0
// Runs cases: every repetition of every case once, all its policies on the same scores, in parallel.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/paper/relayed_run.h"
#include "bench/paper/routerelay_cases.h"
#include "routerelay/status.hpp"

namespace routerelay::paper {

// What one variant came to, summed over layers and repetitions.
struct Outcome {
  RelayCounts counts;
  int64_t counted_rows = 0;   // (row, layer) pairs in the three sums below
  double ids = 0;             // share of the true top k that the route holds
  double mass = 0;            // its softmax mass over that of the true top k
  double cheap_ids = 0;       // share of the true top k in the cheap router's own top k
  int64_t screened_rows = 0;  // (row, layer) pairs in cheap_ids

  Outcome& operator+=(const Outcome& other);
  double rerouted() const;  // rho: share of (row, layer) pairs scored in full, first layer included
  double recall() const;
  double mass_recall() const;
  double pairs() const;     // costly scores over those of full routing
  double screened() const;  // cheap scores over the same
  double cheap_recall() const;
  double survivors() const;  // certify: blocks left to sort, per row
};

struct CaseOutcome {
  std::vector<Outcome> variants;  // in the case's order
  std::vector<double> overlaps;   // in the case's order, 0 .. 1
};

struct RunArgs {
  int threads = 0;  // 0: all cores
  std::function<void(const std::string& what, double done)> progress;
  std::function<bool()> abort;
};

// One outcome per case. Results do not depend on the thread count.
Result<std::vector<CaseOutcome>> run_cases(const std::vector<Case>& cases, const RunArgs& args);

// Ids of each row's k best scores, ascending; ties go to the smaller id. [rows][k]
std::vector<std::vector<int32_t>> true_routes(const Shape& shape, const std::vector<float>& scores);

}  // namespace routerelay::paper
