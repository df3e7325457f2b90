// SPDX-License-Identifier: Apache-2.0
// Summaries against their definitions, key by key, on ragged batches with partly filled blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/reference.h"
#include "support/exec.h"
#include "support/problem.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Problem;
using support::ProblemArgs;
using support::with_dtype;

constexpr SummaryNeeds kEverything{
    .mean = true, .sub_means = true, .box = true, .radius = true, .value_mean = true};

void summarize(const Problem& p, const SummaryNeeds& needs, Summary& summary) {
  support::TestExec t;
  RR_ASSERT_OK(reference::summarize({p.k.view, p.v.view, p.rows, needs, summary}, t.exec));
}

double mean(const support::OwnedTensor& tensor, int64_t begin, int64_t count, int64_t head, int64_t c) {
  double sum = 0;
  for (int64_t t = begin; t < begin + count; ++t) sum += static_cast<double>(tensor.get(t, head, c));
  return sum / static_cast<double>(count);
}

void check_block(const Problem& p, const Summary& s, const BlockRun& run, int64_t block, int64_t head) {
  const int64_t first = block * p.rows.k_block, begin = run.k_begin + first;
  const int64_t tokens = std::min<int64_t>(p.rows.k_block, run.k_len - first), dim = s.head_dim;
  const int64_t at = head * s.n_blocks + run.first_block + block;
  double radius = 0;
  for (int64_t t = begin; t < begin + tokens; ++t) {
    double squared = 0;
    for (int64_t c = 0; c < dim; ++c)
      squared +=
          std::pow(static_cast<double>(p.k.get(t, head, c) - s.mean[static_cast<size_t>(at * dim + c)]), 2);
    radius = std::max(radius, std::sqrt(squared));
  }
  EXPECT_NEAR(s.radius[static_cast<size_t>(at)], radius, 1e-5);
  for (int64_t c = 0; c < dim; ++c) {
    const auto i = static_cast<size_t>(at * dim + c);
    EXPECT_NEAR(s.mean[i], mean(p.k, begin, tokens, head, c), 1e-6);
    EXPECT_NEAR(s.value_mean[i], mean(p.v, begin, tokens, head, c), 1e-6);
    float low = p.k.get(begin, head, c), high = low;
    for (int64_t t = begin; t < begin + tokens; ++t) {
      low = std::min(low, p.k.get(t, head, c));
      high = std::max(high, p.k.get(t, head, c));
    }
    EXPECT_EQ(s.box_min[i], low);
    EXPECT_EQ(s.box_max[i], high);
    for (int64_t sub = 0; sub < s.subs_per_block; ++sub) {
      const int64_t keys = std::clamp<int64_t>(tokens - sub * 8, 0, 8);
      const double want = keys > 0 ? mean(p.k, begin + sub * 8, keys, head, c) : 0;
      const float got =
          bf16_to_f32(s.sub_means[static_cast<size_t>((at * s.subs_per_block + sub) * dim + c)]);
      EXPECT_NEAR(got, want, std::fabs(want) * 0x1p-8 + 1e-7);  // half a unit in bf16's last place
    }
  }
}

TEST(Summarize, HoldsWhatItSays) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0}) {
    ProblemArgs args = with_dtype({.q_tokens = 10, .k_tokens = 400, .q_heads = 2, .kv_heads = 2}, dtype);
    args.sequences = {{0, 5, 0, 1, 0}, {5, 0, 1, 0, 0}, {5, 5, 7, 200, 195}, {10, 0, 210, 65, 0}};
    Problem p(args);
    Summary s;
    summarize(p, kEverything, s);
    EXPECT_EQ(s.n_blocks, 1 + 0 + 4 + 2);
    EXPECT_EQ(s.subs_per_block, 8);
    for (const BlockRun& run : p.rows.runs)
      for (int64_t block = 0; block < run.n_blocks; ++block)
        for (int64_t head = 0; head < 2; ++head) check_block(p, s, run, block, head);
  }
}

TEST(Summarize, WritesOnlyWhatIsNeeded) {
  Problem p({.q_tokens = 10, .k_tokens = 130});
  Summary s;
  summarize(p, {.radius = true}, s);
  EXPECT_EQ(s.radius.size(), 3u);
  EXPECT_TRUE(s.mean.empty() && s.sub_means.empty() && s.box_min.empty() && s.value_mean.empty());
  summarize(p, {}, s);
  EXPECT_EQ(s.bytes(), 0);
}

TEST(Summarize, TheSameBitsForAnyThreads) {
  Problem p({.q_tokens = 10, .k_tokens = 300, .q_heads = 3, .kv_heads = 3});
  Summary a, b;
  support::TestExec one(1), four(4);
  RR_ASSERT_OK(reference::summarize({p.k.view, p.v.view, p.rows, kEverything, a}, one.exec));
  RR_ASSERT_OK(reference::summarize({p.k.view, p.v.view, p.rows, kEverything, b}, four.exec));
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.sub_means, b.sub_means);
  EXPECT_EQ(a.radius, b.radius);
  EXPECT_EQ(a.box_max, b.box_max);
}

}  // namespace
}  // namespace routerelay
