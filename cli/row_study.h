// SPDX-License-Identifier: Apache-2.0
// One row of one traced layer under a preset: which blocks it took, and what each was worth.
#pragma once

#include <vector>

#include "routerelay/engine.hpp"
#include "routerelay/trace.hpp"

namespace routerelay::cli {

struct RowStudyArgs {
  int layer = 0;
  int head = 0;      // query head
  int64_t row = -1;  // -1: the last
};

enum class Why : uint8_t { kNotPicked, kSink, kLocal, kDiagonal, kScore, kDense };
const char* name_of(Why why);

struct BlockStudy {
  int32_t block = 0;
  Why why = Why::kNotPicked;
  int rank = 0;         // by the router's score of every visible block, from 1; 0: forced, does not compete
  double estimate = 0;  // that score
  double mass = 0;      // true attention mass, mean over the row's queries
  bool before = false;  // in this row's route of the routed layer before
};

struct RowStudy {
  int64_t row = 0;
  int64_t n_rows = 0;
  int64_t position = 0;  // of its first query
  int q_count = 0;
  int64_t visible_keys = 0;
  bool dense = false;
  bool relayed = false;  // the layer read a ledger
  Cause cause = Cause::kNone;
  int layer_before = -1;           // the routed layer whose route `before` speaks of; -1: none
  std::vector<BlockStudy> blocks;  // every visible one, ascending
};

// Replays the trace's layers up to args.layer through one Pass, so that what is relayed is as in `run`.
Result<RowStudy> study_row(Engine& engine, const Trace& trace, const Options& options,
                           const RowStudyArgs& args);

}  // namespace routerelay::cli
