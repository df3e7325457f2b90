// SPDX-License-Identifier: Apache-2.0
#include "cpu/route/scorer.h"

#include "cpu/route/pair_scorer.h"
#include "cpu/route/softmax_scorer.h"

namespace routerelay::cpu {

std::unique_ptr<RowScorer> make_scorer(const ScorerArgs& args, Isa isa) {
  if (is_softmax(args.router.kind))
    return std::make_unique<SoftmaxScorer>(args, softmax_kernel(isa), pair_kernel(isa));
  return std::make_unique<PairScorer>(args, pair_kernel(isa));
}

}  // namespace routerelay::cpu
