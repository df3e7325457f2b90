// SPDX-License-Identifier: Apache-2.0
#include "core/summary.h"

#include "core/assert.h"

namespace routerelay {

SummaryNeeds SummaryNeeds::of(const Options& options) {
  SummaryNeeds needs;
  if (options.dense) return needs;
  const bool screens = options.relay.mode == Relay::kScreen;
  needs.mean = options.router.kind == Router::kCentroid || options.router.kind == Router::kBall;
  needs.radius = options.router.kind == Router::kBall;
  needs.box = options.router.kind == Router::kBox;
  needs.sub_means = options.router.kind == Router::kSub || screens;
  needs.sub_k = options.router.kind == Router::kSub ? options.router.sub_k : 8;
  return needs;
}

void Summary::resize(const SummaryNeeds& needs, int64_t blocks, int64_t heads, int64_t dim, int k_block) {
  RR_ASSERT(!needs.sub_means || (needs.sub_k > 0 && k_block % needs.sub_k == 0));
  n_blocks = blocks;
  kv_heads = heads;
  head_dim = dim;
  subs_per_block = needs.sub_means ? k_block / needs.sub_k : 0;
  const auto vectors = static_cast<size_t>(blocks * heads * dim);
  mean.assign(needs.mean ? vectors : 0, 0);
  sub_means.assign(needs.sub_means ? vectors * static_cast<size_t>(subs_per_block) : 0, 0);
  box_min.assign(needs.box ? vectors : 0, 0);
  box_max.assign(needs.box ? vectors : 0, 0);
  radius.assign(needs.radius ? static_cast<size_t>(blocks * heads) : 0, 0);
  value_mean.assign(needs.value_mean ? vectors : 0, 0);
}

}  // namespace routerelay
