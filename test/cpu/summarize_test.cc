// SPDX-License-Identifier: Apache-2.0
// The CPU's summaries against the reference's: every ISA, odd lengths, ragged batches, strides, broken input.
#include "cpu/summarize/summarize.h"

#include <gtest/gtest.h>

#include "cpu/isa_test.h"
#include "reference/reference.h"
#include "support/exec.h"
#include "support/problem.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Layout;
using support::Problem;
using support::ProblemArgs;
using support::TestExec;

class SummarizeTest : public support::IsaTest<Isa> {};

constexpr SummaryNeeds kEverything{true, true, true, true, true, 8};

Summary summarize(const Problem& p, const SummaryNeeds& needs, Isa isa, int threads = 2) {
  TestExec on(threads, isa);
  Summary summary;
  const Status status = cpu::summarize({p.k.view, p.v.view, p.rows, needs, summary}, on.exec);
  EXPECT_TRUE(status.ok()) << status.message();
  return summary;
}

Summary reference_summary(const Problem& p, const SummaryNeeds& needs) {
  TestExec on(1, Isa::kScalar);
  Summary summary;
  const Status status = reference::summarize({p.k.view, p.v.view, p.rows, needs, summary}, on.exec);
  EXPECT_TRUE(status.ok()) << status.message();
  return summary;
}

// f32 sums of at most 128 terms of size 1 to 4 against float64 ones: some 20 units in the last place.
void expect_near(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 5e-6 * (1 + std::fabs(want[i]))) << what << i;
}

void expect_same_summary(const Summary& got, const Summary& want) {
  expect_near(got.mean, want.mean, "mean");
  expect_near(got.radius, want.radius, "radius");
  expect_near(got.value_mean, want.value_mean, "value_mean");
  EXPECT_EQ(got.box_min, want.box_min);
  EXPECT_EQ(got.box_max, want.box_max);
  ASSERT_EQ(got.sub_means.size(), want.sub_means.size());
  for (size_t i = 0; i < got.sub_means.size(); ++i) {
    const float a = bf16_to_f32(got.sub_means[i]), b = bf16_to_f32(want.sub_means[i]);
    // A sum on the edge between two bf16 numbers may fall to either; beside zero they lie closer than the sum's error.
    ASSERT_NEAR(a, b, 0x1p-7 * std::fabs(b) + 1e-6) << "sub_means" << i;
  }
}

TEST_P(SummarizeTest, MatchesTheReferenceAtOddLengths) {
  for (const int64_t tokens : {1, 7, 63, 64, 65, 127, 128, 1000})
    for (const int k_block : {64, 128})
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0}) {
        ProblemArgs args{.q_tokens = 1, .k_tokens = tokens, .q_heads = 3, .kv_heads = 3, .k_block = k_block};
        args.head_dim = tokens == 65 ? (dtype == DType::kQ8_0 ? 96 : 80) : tokens == 127 ? 256 : 64;
        args.layout = tokens == 1000 ? Layout::kPadded : Layout::kHeadMajor;
        const Problem p(support::with_dtype(args, dtype));
        SCOPED_TRACE(testing::Message()
                     << tokens << " tokens, blocks of " << k_block << ", " << dtype_name(dtype));
        expect_same_summary(summarize(p, kEverything, GetParam()), reference_summary(p, kEverything));
      }
}

TEST_P(SummarizeTest, EachPartAloneIsThePartOfTheWhole) {
  const Problem p({.q_tokens = 1, .k_tokens = 200, .kv_heads = 1});
  const Summary whole = summarize(p, kEverything, GetParam());
  EXPECT_EQ(summarize(p, {.mean = true}, GetParam()).mean, whole.mean);
  EXPECT_EQ(summarize(p, {.box = true}, GetParam()).box_max, whole.box_max);
  EXPECT_EQ(summarize(p, {.value_mean = true}, GetParam()).value_mean, whole.value_mean);
  const Summary radius = summarize(p, {.radius = true}, GetParam());
  EXPECT_TRUE(radius.mean.empty());
  expect_near(radius.radius, whole.radius, "radius");
  for (const int sub_k : {1, 4, 32, 64}) {
    const SummaryNeeds needs{.sub_means = true, .sub_k = sub_k};
    expect_same_summary(summarize(p, needs, GetParam()), reference_summary(p, needs));
  }
  EXPECT_EQ(summarize(p, {}, GetParam()).bytes(), 0);
}

TEST_P(SummarizeTest, EverySequenceHasItsOwnBlocks) {
  ProblemArgs args{.q_tokens = 4, .k_tokens = 400, .q_heads = 2, .kv_heads = 2};
  args.sequences = {{0, 1, 10, 100, 99}, {1, 1, 200, 0, 0}, {2, 1, 110, 65, 64}, {3, 1, 330, 70, 0}};
  const Problem p(args);
  expect_same_summary(summarize(p, kEverything, GetParam()), reference_summary(p, kEverything));
}

TEST_P(SummarizeTest, NothingToSummarize) {
  const Problem p({.q_tokens = 0, .k_tokens = 0});
  EXPECT_EQ(summarize(p, kEverything, GetParam()).n_blocks, 0);
}

TEST_P(SummarizeTest, BrokenKeysStayInTheirBlock) {
  Problem p({.q_tokens = 1, .k_tokens = 300});
  const Summary clean = summarize(p, kEverything, GetParam());
  p.k.set(70, 0, 3, std::numeric_limits<float>::quiet_NaN());
  p.k.set(71, 0, 4, std::numeric_limits<float>::infinity());
  const Summary broken = summarize(p, kEverything, GetParam());
  EXPECT_TRUE(std::isnan(broken.mean[64 + 3]));
  for (size_t i = 0; i < clean.mean.size(); ++i)
    if (i / 64 != 1) {
      ASSERT_EQ(clean.mean[i], broken.mean[i]) << i;
    }
  for (size_t i = 0; i < clean.sub_means.size(); ++i)
    if (i / 64 != 8) {
      ASSERT_EQ(clean.sub_means[i], broken.sub_means[i]) << i;
    }
}

TEST_P(SummarizeTest, ThreadsChangeNoBit) {
  const Problem p({.q_tokens = 1, .k_tokens = 3000, .q_heads = 2, .kv_heads = 2});
  const Summary one = summarize(p, kEverything, GetParam(), 1),
                four = summarize(p, kEverything, GetParam(), 4);
  EXPECT_EQ(one.mean, four.mean);
  EXPECT_EQ(one.sub_means, four.sub_means);
  EXPECT_EQ(one.radius, four.radius);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, SummarizeTest, support::kEveryIsa, support::CaseName());

}  // namespace
}  // namespace routerelay
