// SPDX-License-Identifier: Apache-2.0
#include "reference/scorer.h"

#include "core/assert.h"
#include "core/routes.h"
#include "reference/router/router.h"

namespace routerelay::reference {

void Scorer::score(int, int64_t row_idx, int kv_head, std::span<const ScoreRequest> requests) {
  const Row& row = rows_.rows[static_cast<size_t>(row_idx)];
  for (const ScoreRequest& request : requests) {
    RR_ASSERT(ascends_below(request.ids, row.visible_blocks));
    RR_ASSERT(request.q_head / (q_.heads / k_.heads) == kv_head);
    const RouterInput in{q_,      k_,     row, rows_.k_block, summary_, options_, static_cast<double>(scale_),
                         kv_head, request};
    switch (options_.kind) {
      case Router::kCentroid:
        score_centroid(in);
        break;
      case Router::kSub:
        score_sub(in);
        break;
      case Router::kSampled:
        score_sampled(in);
        break;
      case Router::kAntidiag:
        score_antidiag(in);
        break;
      case Router::kBox:
        score_box(in);
        break;
      case Router::kBall:
        score_ball(in);
        break;
    }
  }
}

}  // namespace routerelay::reference
