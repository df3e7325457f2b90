// SPDX-License-Identifier: Apache-2.0
// sampled m: m evenly spaced queries of the row against every visible key of the scored blocks, softmax per query,
// summed per block, averaged over the queries. Sample i of t queries is number ceil((i + 1) t / m) - 1, so the row's
// last query is always one (64 and 4 give 15, 31, 47, 63); a short row draws some twice, which counts once.
#include <algorithm>

#include "core/rows.h"
#include "reference/read.h"
#include "reference/router/router.h"

namespace routerelay::reference {

void score_sampled(const RouterInput& in) {
  const int64_t dim = in.q.head_dim,
                samples = in.request.samples > 0 ? in.request.samples : in.options.samples;
  BlockSoftmax softmax(in.request.ids.size());
  int64_t previous = -1;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t sample = ceil_div((i + 1) * in.row.q_count, samples) - 1;
    if (sample == previous) continue;
    previous = sample;
    const std::vector<float> query = read_tokens(in.q, in.row.q_begin + sample, 1, in.request.q_head);
    const int64_t visible = in.row.keys_of(static_cast<int32_t>(sample));
    for (size_t b = 0; b < in.request.ids.size(); ++b) {
      const int64_t first = static_cast<int64_t>(in.request.ids[b]) * in.k_block;
      const int64_t count = std::min<int64_t>(in.k_block, visible - first);
      if (count <= 0) continue;  // the block lies ahead of this query
      const std::vector<float> keys = read_tokens(in.k, in.row.k_begin + first, count, in.kv_head);
      for (int64_t j = 0; j < count; ++j)
        softmax.add_key(b, in.scale * dot(query.data(), keys.data() + j * dim, dim));
    }
    softmax.end_query();
  }
  softmax.write(in.request.score);
}

}  // namespace routerelay::reference
