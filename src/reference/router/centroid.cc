// SPDX-License-Identifier: Apache-2.0
// centroid: scale * mean query of the row . mean key of the block, each over the tokens present.
#include "reference/read.h"
#include "reference/router/router.h"

namespace routerelay::reference {

void score_centroid(const RouterInput& in) {
  const int64_t dim = in.q.head_dim;
  const std::vector<float> queries = read_tokens(in.q, in.row.q_begin, in.row.q_count, in.request.q_head);
  const std::vector<float> mean = mean_of(queries.data(), in.row.q_count, dim);
  for (size_t i = 0; i < in.request.ids.size(); ++i) {
    const float* key = in.summary.mean.data() + in.summary_block(in.request.ids[i]) * dim;
    in.request.score[i] = static_cast<float>(in.scale * dot(mean.data(), key, dim));
  }
}

}  // namespace routerelay::reference
