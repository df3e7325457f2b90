// SPDX-License-Identifier: Apache-2.0
// What masks leave of rows and blocks, and which masks are refused.
#include "core/mask.h"

#include <gtest/gtest.h>

#include "support/exec.h"
#include "support/problem.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Problem;
using support::ProblemArgs;
using support::TestExec;

class MaskTest : public testing::Test {
 protected:
  Status read(Problem& p) { return read_masks(p.masks, p.rows, exec_.exec, out_); }
  std::vector<int32_t> shown(int64_t row) const { return {out_.shown[row].begin(), out_.shown[row].end()}; }
  TestExec exec_{2, Isa::kScalar};
  MaskedRows out_;
};

TEST_F(MaskTest, TellsWholePartAndNothing) {
  Problem p(ProblemArgs{.q_tokens = 100, .k_tokens = 200, .sequences = {{0, 100, 0, 200, 200}}});
  p.hide([](size_t, int64_t i, int64_t j) { return (i < 64 && j < 64) || (i == 70 && j == 150); });
  RR_ASSERT_OK(read(p));
  ASSERT_EQ(p.rows.size(), 2);
  EXPECT_EQ(shown(0), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(shown(1), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(out_.of(0)[0], Sight::kNone);
  EXPECT_EQ(out_.of(0)[1], Sight::kAll);
  EXPECT_EQ(out_.of(1)[2], Sight::kSome);
  EXPECT_EQ(out_.of(1)[3], Sight::kAll);  // its last keys are past the cache: the geometry's business
}

TEST_F(MaskTest, ReadsEverySequenceFromItsOwnFirstKey) {
  Problem p(ProblemArgs{
      .q_tokens = 96, .k_tokens = 400, .sequences = {{0, 32, 300, 64, 64}, {32, 64, 0, 256, 256}}});
  p.hide([](size_t s, int64_t, int64_t j) { return s == 1 && j >= 64 && j < 192; });
  RR_ASSERT_OK(read(p));
  EXPECT_EQ(shown(0), (std::vector<int32_t>{0}));
  EXPECT_EQ(shown(1), (std::vector<int32_t>{0, 3}));
}

// What causality hides is not read: a host may leave anything there.
TEST_F(MaskTest, RefusesOtherValuesWhereTheyCount) {
  Problem p(ProblemArgs{.q_tokens = 100, .k_tokens = 100});
  p.hide([](size_t, int64_t, int64_t) { return false; });
  const int64_t stride = p.masks[0].row_stride;
  p.mask_values[0][static_cast<size_t>(10 * stride + 50)] = 0x3c00;
  RR_ASSERT_OK(read(p));
  p.mask_values[0][static_cast<size_t>(90 * stride + 20)] = 0x3c00;
  p.mask_values[0][static_cast<size_t>(70 * stride + 30)] = 0xbc00;
  support::expect_error(read(p), Code::kUnsupported,
                        "mask: query 70 has the f16 value 0xbc00 at key 30; legal: 0 and -inf");
}

TEST_F(MaskTest, CallsAreChecked) {
  Problem p(ProblemArgs{.q_tokens = 10, .k_tokens = 20});
  p.hide([](size_t, int64_t, int64_t) { return false; });
  LayerArgs args = p.layer_args();
  RR_ASSERT_OK(check_layer(args));
  const auto refuses = [&](Mask mask, const char* message) {
    args.masks = {&mask, 1};
    support::expect_error(check_layer(args), Code::kInvalidArgument, message);
  };
  refuses({nullptr, 20}, "layer: masks[0].data is null");
  refuses({p.masks[0].data, 19},
          "layer: masks[0].row_stride is 19; legal: k_len, which is 20, to 4294967296");
  const std::vector<Mask> two(2, p.masks[0]);
  args.masks = two;
  support::expect_error(check_layer(args), Code::kInvalidArgument,
                        "layer: masks are 2 for 1 sequences; one each, or none");
}

}  // namespace
}  // namespace routerelay
