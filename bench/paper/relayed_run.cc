// SPDX-License-Identifier: Apache-2.0
#include "bench/paper/relayed_run.h"

#include <algorithm>

#include "core/policy/relay_rows.h"
#include "core/policy/route_rows.h"

namespace routerelay {
namespace {

// A router whose scores are given: a pair's score is the same whoever asks and whatever else is asked.
class GivenScores : public RowScorer {
 public:
  GivenScores(std::span<const float> scores, int blocks) : scores_(scores), blocks_(blocks) {}
  void score(int, int64_t row, int, std::span<const ScoreRequest> requests) override {
    const auto of_row = scores_.subspan(static_cast<size_t>(row * blocks_), static_cast<size_t>(blocks_));
    for (const ScoreRequest& r : requests)
      for (size_t i = 0; i < r.ids.size(); ++i) r.score[i] = of_row[static_cast<size_t>(r.ids[i])];
  }

 private:
  std::span<const float> scores_;
  int64_t blocks_;
};

Options options_of(const Shape& shape, const RelayOptions& relay, uint64_t seed) {
  Options o;
  o.preset = "given scores";
  o.dense = false;
  o.router.kind = Router::kCentroid;  // any whose scores are raw: the scorer decides what they are
  o.selection.kind = Selection::kTopK;
  o.selection.k = shape.k;
  o.selection.floor = static_cast<double>(shape.k) / shape.blocks;  // screen counts its candidates in floors
  o.relay = relay;
  o.relay.seed = seed;
  o.q_block = o.k_block = 1;
  o.sink_blocks = 0;
  o.force_diagonal = false;
  o.dense_layers = 0;
  o.dense_below = 0;
  return o;
}

// All rows past the end of the keys, so that each sees every block.
Rows rows_of(const Shape& shape) {
  const Sequence all{
      .q_begin = 0, .q_len = shape.rows, .k_begin = 0, .k_len = shape.blocks, .q_offset = shape.blocks};
  return make_rows({&all, 1}, 1, 1);
}

int64_t full_rows(const Proposal& proposal, const LayerReport& report) {
  const auto in_full = std::count_if(proposal.kind.begin(), proposal.kind.end(),
                                     [](Kind kind) { return kind == Kind::kAll || kind == Kind::kCertify; });
  const auto by = [&](Cause cause) { return report.rows_by_cause[static_cast<size_t>(cause)]; };
  return in_full + by(Cause::kProbe) + by(Cause::kSwaps);  // candidates first, then everything
}

}  // namespace

RelayCounts& RelayCounts::operator+=(const RelayCounts& o) {
  rows += o.rows;
  rerouted += o.rerouted;
  pairs += o.pairs;
  screened += o.screened;
  all_pairs += o.all_pairs;
  certified_rows += o.certified_rows;
  survivors += o.survivors;
  return *this;
}

RelayedRun::RelayedRun(const Shape& shape, const RelayOptions& relay, uint64_t seed)
    : shape_(shape), options_(options_of(shape, relay, seed)), rows_(rows_of(shape)) {}

Status RelayedRun::layer(std::span<const float> costly, std::span<const float> cheap) {
  GivenScores costly_router(costly, shape_.blocks), cheap_router(cheap, shape_.blocks);
  // Only their head counts are read: the scores are given.
  const void* nothing = nullptr;
  const Tensor q = contiguous(nothing, DType::kF32, shape_.rows, 1, 1);
  const Tensor k = contiguous(nothing, DType::kF32, shape_.blocks, 1, 1);
  const Summary no_summary;
  Proposal proposal;
  LayerReport report;
  Ledger next;
  Exec exec{pool_, Isa::kScalar, workspace_, {}};
  RR_TRY(relay_rows({.q = q,
                     .k = k,
                     .rows = rows_,
                     .summary = no_summary,
                     .options = options_,
                     .ledger = ledger_,
                     .scale = 1,
                     .routed_layer = layer_,
                     .proposal = proposal,
                     .report = report},
                    costly_router, cheap_router, exec));
  RR_TRY(route_rows({.q = q,
                     .k = k,
                     .rows = rows_,
                     .summary = no_summary,
                     .options = options_,
                     .proposal = proposal,
                     .ledger = ledger_,
                     .scale = 1,
                     .layer = layer_,
                     .next = next,
                     .report = report},
                    costly_router, exec));
  counts_.rows += shape_.rows;
  counts_.rerouted += full_rows(proposal, report);
  counts_.pairs += report.scored_blocks;
  counts_.screened += report.screened_blocks;
  counts_.all_pairs += static_cast<int64_t>(shape_.rows) * shape_.blocks;
  counts_.certified_rows += std::count(proposal.kind.begin(), proposal.kind.end(), Kind::kCertify);
  counts_.survivors += report.survivors;
  ledger_ = std::move(next);
  ++layer_;
  return {};
}

}  // namespace routerelay
