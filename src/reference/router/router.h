// SPDX-License-Identifier: Apache-2.0
// The routers' common ground: what one is given, and the softmax that sub, sampled and antidiag share.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/assert.h"
#include "core/policy/scorer.h"
#include "core/summary.h"
#include "routerelay/tensor.hpp"

namespace routerelay::reference {

// One row of one query head, and the blocks to score.
struct RouterInput {
  const Tensor& q;
  const Tensor& k;
  const Row& row;
  int k_block;
  const Summary& summary;
  const RouterOptions& options;
  double scale;  // of q.k, natural-log units
  int kv_head;
  const ScoreRequest& request;

  // Where block `block` of the row's sequence lies in the Summary's arrays, in blocks.
  int64_t summary_block(int64_t block) const {
    RR_ASSERT(block >= 0 && row.first_block + block < summary.n_blocks && kv_head < summary.kv_heads);
    return kv_head * summary.n_blocks + row.first_block + block;
  }
};

// request.score[i] = the score of block request.ids[i]. Each file says its formula.
void score_centroid(const RouterInput& in);
void score_sub(const RouterInput& in);
void score_sampled(const RouterInput& in);
void score_antidiag(const RouterInput& in);
void score_box(const RouterInput& in);
void score_ball(const RouterInput& in);  // and request.rescue, where asked

// Softmax per query over the keys of the scored blocks, summed per block, averaged over the queries. "Query" and "key"
// may each stand for a group. A query that sees no scored key takes no part in the mean.
class BlockSoftmax {
 public:
  explicit BlockSoftmax(size_t n_blocks) : mass_(n_blocks, 0) {}

  void add_key(size_t block, double logit) {
    RR_ASSERT(block < mass_.size());
    logits_.emplace_back(block, logit);
  }
  void end_query() {
    if (logits_.empty()) return;
    double best = -std::numeric_limits<double>::infinity(), total = 0;
    for (const auto& [block, logit] : logits_) best = std::max(best, logit);
    for (const auto& [block, logit] : logits_) total += std::exp(logit - best);
    for (const auto& [block, logit] : logits_) mass_[block] += std::exp(logit - best) / total;
    logits_.clear();
    ++queries_;
  }
  void write(float* score) const {
    for (size_t i = 0; i < mass_.size(); ++i)
      score[i] = queries_ == 0 ? 0 : static_cast<float>(mass_[i] / queries_);
  }

 private:
  std::vector<double> mass_;                       // [n_blocks], summed over queries
  std::vector<std::pair<size_t, double>> logits_;  // of the query under way
  int queries_ = 0;
};

}  // namespace routerelay::reference
