// SPDX-License-Identifier: Apache-2.0
// ball (RBS-Attention): for query t and block b with centre c_b and radius r_b
//   base_t = scale q_t.c_b,   rescue_t = base_t + scale |q_t| r_b beta_b;
// the score is log sum_t exp(base_t) over the row's queries, the rescue score the same of rescue_t. beta_b is 0 up to
// the median radius, 1 from the 90th percentile on and linear between, so only unusually wide blocks are lifted.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rows.h"
#include "reference/read.h"
#include "reference/router/router.h"

namespace routerelay::reference {
namespace {

// Below this many blocks the percentiles say nothing: no block is lifted (systems.md 4.3).
constexpr int64_t kFewBlocks = 16;

// Where beta begins and reaches 1; both 0 when there is nothing to tell blocks apart by.
struct RadiusRange {
  double low = 0, high = 0;

  // Nearest rank over the complete blocks that the row sees: later keys must not move an earlier row's scores.
  static RadiusRange of(const RouterInput& in) {
    const int64_t n = in.row.visible_keys / in.k_block;
    if (n < kFewBlocks) return {};
    const float* first = in.summary.radius.data() + in.summary_block(0);
    std::vector<float> radii(first, first + n);
    std::sort(radii.begin(), radii.end());
    return {radii[static_cast<size_t>(ceil_div(n, 2) - 1)],
            radii[static_cast<size_t>(ceil_div(9 * n, 10) - 1)]};
  }
  double beta(double radius) const {
    return high > low ? std::clamp((radius - low) / (high - low), 0.0, 1.0) : 0.0;
  }
};

double log_sum_exp(const std::vector<double>& x) {
  const double best = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double each : x) sum += std::exp(each - best);
  return best + std::log(sum);
}

}  // namespace

void score_ball(const RouterInput& in) {
  const int64_t dim = in.q.head_dim;
  const std::vector<float> queries = read_tokens(in.q, in.row.q_begin, in.row.q_count, in.request.q_head);
  const RadiusRange range = RadiusRange::of(in);
  std::vector<double> base(static_cast<size_t>(in.row.q_count)), rescue(base);
  for (size_t i = 0; i < in.request.ids.size(); ++i) {
    const int64_t block = in.summary_block(in.request.ids[i]);
    const float* centre = in.summary.mean.data() + block * dim;
    const double radius = in.summary.radius[static_cast<size_t>(block)];
    const double lift = in.scale * radius * range.beta(radius);
    for (size_t t = 0; t < base.size(); ++t) {
      const float* q = queries.data() + static_cast<int64_t>(t) * dim;
      base[t] = in.scale * dot(q, centre, dim);
      rescue[t] = base[t] + lift * std::sqrt(dot(q, q, dim));
    }
    in.request.score[i] = static_cast<float>(log_sum_exp(base));
    if (in.request.rescue != nullptr) in.request.rescue[i] = static_cast<float>(log_sum_exp(rescue));
  }
}

}  // namespace routerelay::reference
