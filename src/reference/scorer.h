// SPDX-License-Identifier: Apache-2.0
// Every router behind the one interface that the rules of relay and route ask (core/policy/scorer.h).
#pragma once

#include "core/policy/scorer.h"
#include "core/summary.h"
#include "routerelay/tensor.hpp"

namespace routerelay::reference {

// Borrows all its arguments. Keeps no state between calls, so any thread may ask for any row.
class Scorer final : public RowScorer {
 public:
  Scorer(const Tensor& q, const Tensor& k, const Rows& rows, const Summary& summary,
         const RouterOptions& options, float scale)
      : q_(q), k_(k), rows_(rows), summary_(summary), options_(options), scale_(scale) {}

  void score(int thread, int64_t row, int kv_head, std::span<const ScoreRequest> requests) override;

 private:
  const Tensor& q_;
  const Tensor& k_;
  const Rows& rows_;
  const Summary& summary_;
  RouterOptions options_;
  float scale_;
};

}  // namespace routerelay::reference
