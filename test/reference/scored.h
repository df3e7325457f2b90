// SPDX-License-Identifier: Apache-2.0
// What the router tests share: a problem with its summary, scores of chosen blocks, and a plain dot product.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "reference/reference.h"
#include "reference/scorer.h"
#include "support/exec.h"
#include "support/problem.h"
#include "support/status.h"

namespace routerelay {

using support::Problem;
using support::ProblemArgs;

inline constexpr SummaryNeeds kEverything{.mean = true, .sub_means = true, .box = true, .radius = true};

// A problem with its summary, and scores of chosen blocks.
struct Scored {
  explicit Scored(const ProblemArgs& args, int sub_k = 8) : p(args) {
    SummaryNeeds needs = kEverything;
    needs.sub_k = sub_k;
    support::TestExec t;
    const Status status = reference::summarize({p.k.view, p.v.view, p.rows, needs, summary}, t.exec);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  std::vector<float> score(const RouterOptions& options, int64_t row, int q_head,
                           const std::vector<int32_t>& ids, std::vector<float>* rescue = nullptr,
                           int samples = 0) {
    std::vector<float> score(ids.size(), std::numeric_limits<float>::quiet_NaN());
    if (rescue != nullptr) rescue->assign(ids.size(), std::numeric_limits<float>::quiet_NaN());
    const int kv_head = q_head / static_cast<int>(p.q.view.heads / p.k.view.heads);
    const ScoreRequest request{q_head, ids, score.data(), rescue != nullptr ? rescue->data() : nullptr,
                               samples};
    reference::Scorer(p.q.view, p.k.view, p.rows, summary, options, p.scale)
        .score(0, row, kv_head, {&request, 1});
    return score;
  }
  std::vector<int32_t> visible(int64_t row) const {
    std::vector<int32_t> ids(static_cast<size_t>(p.rows.rows[static_cast<size_t>(row)].visible_blocks));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }
  Problem p;
  Summary summary;
};

inline double dot(const Problem& p, int64_t q_token, int64_t q_head, int64_t k_token, int64_t kv_head) {
  double sum = 0;
  for (int64_t c = 0; c < p.q.view.head_dim; ++c)
    sum +=
        static_cast<double>(p.q.get(q_token, q_head, c)) * static_cast<double>(p.k.get(k_token, kv_head, c));
  return sum;
}

}  // namespace routerelay
