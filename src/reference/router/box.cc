// SPDX-License-Identifier: Apache-2.0
// box (Quest): the largest over the row's queries of scale * sum_c max(q_c min_c, q_c max_c), a bound on every scaled
// q.k of the pair.
#include <algorithm>
#include <limits>

#include "reference/read.h"
#include "reference/router/router.h"

namespace routerelay::reference {

void score_box(const RouterInput& in) {
  const int64_t dim = in.q.head_dim;
  const std::vector<float> queries = read_tokens(in.q, in.row.q_begin, in.row.q_count, in.request.q_head);
  for (size_t i = 0; i < in.request.ids.size(); ++i) {
    const int64_t at = in.summary_block(in.request.ids[i]) * dim;
    const float* low = in.summary.box_min.data() + at;
    const float* high = in.summary.box_max.data() + at;
    double best = -std::numeric_limits<double>::infinity();
    for (int32_t t = 0; t < in.row.q_count; ++t) {
      const float* q = queries.data() + t * dim;
      double bound = 0;
      for (int64_t c = 0; c < dim; ++c)
        bound += std::max(static_cast<double>(q[c]) * static_cast<double>(low[c]),
                          static_cast<double>(q[c]) * static_cast<double>(high[c]));
      best = std::max(best, in.scale * bound);
    }
    in.request.score[i] = static_cast<float>(best);
  }
}

}  // namespace routerelay::reference
