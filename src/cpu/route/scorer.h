// SPDX-License-Identifier: Apache-2.0
// The routers' scores on the CPU, behind the one interface that the rules of relay and route ask.
#pragma once

#include <memory>

#include "core/policy/scorer.h"
#include "core/summary.h"
#include "routerelay/tensor.hpp"

namespace routerelay::cpu {

struct ScorerArgs {
  const Tensor& q;
  const Tensor& k;
  const Rows& rows;
  const Summary& summary;
  RouterOptions router;
  float scale = 0;  // of q.k
};

// Borrows what `args` refers to. The scorer works in the workspace of the Exec that its begin_heads got.
std::unique_ptr<RowScorer> make_scorer(const ScorerArgs& args, Isa isa);

}  // namespace routerelay::cpu
