// SPDX-License-Identifier: Apache-2.0
// centroid, box and ball: scores of a pair that depend on that pair alone, from the Summary and the row's queries.
#pragma once

#include <vector>

#include "cpu/route/kernel.h"
#include "cpu/route/scorer.h"

namespace routerelay::cpu {

class PairScorer final : public RowScorer {
 public:
  PairScorer(const ScorerArgs& args, const PairKernel& kernel) : a_(args), kernel_(kernel) {}

  Status begin_heads(int kv_first, int kv_count, Exec& exec) override;
  void score(int thread, int64_t row, int kv_head, std::span<const ScoreRequest> requests) override;

 private:
  // A thread's vectors: a row allocates nothing once they have grown.
  struct Scratch {
    std::vector<float> radii;
    std::vector<float> lift;
  };

  PairJob job_of(const Row& row, int kv_head, const ScoreRequest& request, Scratch& scratch) const;

  ScorerArgs a_;
  const PairKernel& kernel_;
  Workspace* workspace_ = nullptr;
  std::vector<Scratch> scratch_;
};

}  // namespace routerelay::cpu
