// SPDX-License-Identifier: Apache-2.0
// antidiag s: groups of s queries from the row's first, groups of s keys from position 0. The logit of groups (u, v) is
// the sum along one antidiagonal of their s x s tile,
//   scale / s * sum_{a < s} q[u s + s-1-a] . k[v s + a],
// softmax per query group, summed per block, averaged over query groups. v is visible when its first key is not after
// u's last query. Tokens that are absent, keys that the row does not see among them, count as zeros: so a row's score
// does not depend on what follows the row.
#include <algorithm>

#include "reference/read.h"
#include "reference/router/router.h"

namespace routerelay::reference {
namespace {

// `keys` are `count` keys of group v; `queries` are all of the row's.
double antidiagonal(const RouterInput& in, const std::vector<float>& queries, int64_t u, const float* keys,
                    int64_t count) {
  const int64_t s = in.options.stride, dim = in.q.head_dim;
  double sum = 0;
  for (int64_t a = 0; a < count; ++a) {
    const int64_t query = u * s + s - 1 - a;
    if (query < in.row.q_count) sum += dot(queries.data() + query * dim, keys + a * dim, dim);
  }
  return in.scale * sum / static_cast<double>(s);
}

}  // namespace

void score_antidiag(const RouterInput& in) {
  const int64_t s = in.options.stride, dim = in.q.head_dim;
  const std::vector<float> queries = read_tokens(in.q, in.row.q_begin, in.row.q_count, in.request.q_head);
  BlockSoftmax softmax(in.request.ids.size());
  for (int64_t u = 0; u * s < in.row.q_count; ++u) {
    const auto last = static_cast<int32_t>(std::min<int64_t>((u + 1) * s, in.row.q_count) - 1);
    const int64_t visible = in.row.keys_of(last);
    for (size_t i = 0; i < in.request.ids.size(); ++i) {
      const int64_t first = static_cast<int64_t>(in.request.ids[i]) * in.k_block;
      const int64_t present = std::min<int64_t>(in.k_block, in.row.visible_keys - first);
      const std::vector<float> keys = read_tokens(in.k, in.row.k_begin + first, present, in.kv_head);
      for (int64_t v = 0; v < present && first + v < visible; v += s)
        softmax.add_key(i, antidiagonal(in, queries, u, keys.data() + v * dim, std::min(s, present - v)));
    }
    softmax.end_query();
  }
  softmax.write(in.request.score);
}

}  // namespace routerelay::reference
