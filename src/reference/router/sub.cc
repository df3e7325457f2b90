// SPDX-License-Identifier: Apache-2.0
// sub a x b: mean of a queries . mean of b keys, softmax per query group, summed per block, averaged over query groups.
// Query groups start at the row's first query, key groups at position 0; means run over the tokens present. Both kinds
// of mean are rounded to bf16, as a bf16 kernel has them.
#include <algorithm>

#include "reference/read.h"
#include "reference/router/router.h"

namespace routerelay::reference {
namespace {

std::vector<float> bf16_mean(const float* vectors, int64_t count, int64_t dim) {
  std::vector<float> mean = mean_of(vectors, count, dim);
  for (float& x : mean) x = bf16_to_f32(f32_to_bf16(x));
  return mean;
}

}  // namespace

void score_sub(const RouterInput& in) {
  const int64_t dim = in.q.head_dim;
  const int subs = in.summary.subs_per_block;
  const int sub_k =
      in.k_block / subs;  // the summary's own group size: screen's cheap router takes what is there
  const std::vector<float> queries = read_tokens(in.q, in.row.q_begin, in.row.q_count, in.request.q_head);
  std::vector<float> key(static_cast<size_t>(dim));
  BlockSoftmax softmax(in.request.ids.size());
  for (int32_t begin = 0; begin < in.row.q_count; begin += in.options.sub_q) {
    const int32_t end = std::min(begin + in.options.sub_q, in.row.q_count);
    const std::vector<float> query = bf16_mean(queries.data() + begin * dim, end - begin, dim);
    const int64_t visible = in.row.keys_of(end - 1);  // of the group's last query
    for (size_t i = 0; i < in.request.ids.size(); ++i) {
      const int64_t block = in.request.ids[i];
      for (int sub = 0; sub < subs; ++sub) {
        if (block * in.k_block + sub * sub_k >= visible) break;
        const uint16_t* mean = in.summary.sub_means.data() + (in.summary_block(block) * subs + sub) * dim;
        for (int64_t c = 0; c < dim; ++c) key[static_cast<size_t>(c)] = bf16_to_f32(mean[c]);
        softmax.add_key(i, in.scale * dot(query.data(), key.data(), dim));
      }
    }
    softmax.end_query();
  }
  softmax.write(in.request.score);
}

}  // namespace routerelay::reference
