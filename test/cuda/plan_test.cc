// SPDX-License-Identifier: Apache-2.0
// What plan_attend makes of the calls that it accepts. No device is touched.
#include "cuda/attend/plan.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "cuda/plan_args.h"
#include "support/status.h"

namespace routerelay::cuda {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

AttendPlan plan_of(const AttendArgs& args) {
  const Result<AttendPlan> plan = plan_attend(args);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? plan.value() : AttendPlan{};
}

TEST(AttendPlan, EveryConfigIsChosenByItsOwnArguments) {
  ASSERT_EQ(attend_configs().size(), 24U + 20U + 8U + 4U);
  for (AttendConfig config : attend_configs()) {
    AttendArgs a = legal_args(config.head_dim);
    a.q.dtype = a.out.dtype = config.dtype;
    a.k.dtype = a.v.dtype = config.kv_dtype;
    a.q_block = config.q_block, a.k_block = config.k_block;
    if (!is_quantised(config)) {  // the device, which nobody has seen yet, may bring a faster one
      config.arch = Arch::sm80;
      config.heads_per_tile = 1;
    }
    EXPECT_EQ(plan_of(a).config, config);
  }
}

TEST(AttendPlan, E4M3ScalesAreOptional) {
  for (const float* scale : {address<const float>(0x6000), address<const float>(0)}) {
    AttendArgs a = e4m3_args();
    a.k_scale = scale;
    EXPECT_EQ(plan_of(a).config.kv_dtype, DType::kE4M3);
    a.k_scale = a.v_scale, a.v_scale = scale;
    EXPECT_EQ(plan_of(a).config.kv_dtype, DType::kE4M3);
  }
}

TEST(AttendPlan, DefaultSequenceEndsWhereItsKeysEnd) {
  const Sequence causal = plan_of(legal_args()).sequence;
  EXPECT_EQ(causal.q_len, 300);
  EXPECT_EQ(causal.k_len, 1000);
  EXPECT_EQ(causal.q_offset, 700);
  AttendArgs all = legal_args();
  all.causal = false;
  all.k.tokens = all.v.tokens = 10;  // fewer keys than queries: positions do not matter
  const Sequence whole = plan_of(all).sequence;
  EXPECT_EQ(whole.q_len, 300);
  EXPECT_EQ(whole.k_len, 10);
  EXPECT_EQ(whole.q_offset, 0);
}

TEST(AttendPlan, AnOffsetBeyondTheKeysShowsThemAll) {
  AttendArgs a = legal_args();
  a.sequence = {10, 20, 30, 40, kHuge};
  const Sequence s = plan_of(a).sequence;
  EXPECT_EQ(s.q_begin, 10);
  EXPECT_EQ(s.q_len, 20);
  EXPECT_EQ(s.k_begin, 30);
  EXPECT_EQ(s.k_len, 40);
  EXPECT_EQ(s.q_offset, 40);
}

TEST(AttendPlan, PagesBringTheirOwnBegin) {
  AttendArgs a = paged_args();
  a.sequence.k_begin = kHuge;
  a.sequence.k_len = 16 * 64;
  EXPECT_EQ(plan_of(a).sequence.k_begin, 0);
  EXPECT_EQ(plan_of(a).sequence.k_len, 1024);
}

// A page may stand in a table as often as it likes.
TEST(AttendPlan, ASequenceMayHaveMoreTokensThanThereAre) {
  AttendArgs a = paged_args();
  a.pages.max_pages = 1 << 24;
  a.sequence.k_len = a.sequence.q_offset = int64_t{1} << 30;
  EXPECT_EQ(plan_of(a).sequence.k_len, int64_t{1} << 30);
}

TEST(AttendPlan, EveryPageSizeAndStride) {
  for (const int32_t size : {16, 32, 64, 128, 256}) {
    AttendArgs a = paged_args();
    a.pages.page_size = size;
    a.pages.max_pages = 1024 / size;
    plan_of(a);
    a.k.head_stride = a.v.head_stride = size * 128;  // heads outside of tokens
    a.k.token_stride = a.v.token_stride = 128;
    a.pages.page_stride = 2 * size * 128 + 8;
    plan_of(a);
  }
}

TEST(AttendPlan, ListsMayBeShared) {
  AttendArgs a = legal_args();
  for (const int64_t heads : {0, 1, 2, 4, 8}) {
    a.routes = {address<int64_t>(0x5000), address<int32_t>(0x6000), heads};
    EXPECT_EQ(plan_of(a).n_work, 3 * 8) << heads;
  }
}

// legal_args has 8 query heads over 2.
TEST(AttendPlan, PairsThatShareEverythingMayBePacked) {
  AttendArgs a = legal_args();
  EXPECT_TRUE(plan_of(a).may_share_tiles) << "every block";
  for (const auto& [heads, may] : {std::pair{0, false}, {8, false}, {4, true}, {2, true}, {1, true}}) {
    a.routes = {address<int64_t>(0x5000), address<int32_t>(0x6000), heads};
    EXPECT_EQ(plan_of(a).may_share_tiles, may) << heads;
  }
  a.routes.heads = 1;
  a.k.heads = a.v.heads = 8;
  EXPECT_FALSE(plan_of(a).may_share_tiles) << "keys of their own";
}

TEST(AttendPlan, HopperSharesTilesBetweenHeadsWhereItCan) {
  int shared = 0;
  for (const AttendConfig& config : attend_configs()) {
    AttendArgs a = legal_args(config.head_dim);
    a.q.dtype = a.out.dtype = config.dtype;
    a.k.dtype = a.v.dtype = config.kv_dtype;
    a.q_block = config.q_block, a.k_block = config.k_block;
    const bool may = config.q_block == 64 && config.head_dim < 256;
    const AttendConfig chosen = config_for(plan_of(a), Arch::sm90, true);
    EXPECT_EQ(chosen.heads_per_tile, may ? 2 : 1);
    EXPECT_EQ(std::ranges::count(attend_configs(), chosen), may || config.q_block == 128 ? 1 : 0);
    shared += may && config.heads_per_tile == 2 ? 1 : 0;
    EXPECT_EQ(config_for(plan_of(a), Arch::sm90, false).heads_per_tile, 1);
    EXPECT_EQ(config_for(plan_of(a), Arch::sm80, true).heads_per_tile, 1);
    a.routes = {address<int64_t>(0x5000), address<int32_t>(0x6000)};
    EXPECT_EQ(config_for(plan_of(a), Arch::sm90, true).heads_per_tile, 1) << "lists of their own";
  }
  EXPECT_EQ(shared, 8);
}

TEST(AttendPlan, CountsRowsOfAllHeads) {
  AttendArgs a = legal_args();
  for (const auto& [queries, rows] : {std::pair{1, 1}, {127, 1}, {128, 1}, {129, 2}, {256, 2}, {300, 3}}) {
    a.sequence = {0, queries, 0, 1000, 0};
    EXPECT_EQ(plan_of(a).n_rows, rows) << queries;
    EXPECT_EQ(plan_of(a).n_work, rows * 8) << queries;
  }
  a.sequences = address<Sequence>(0x5000);
  a.n_sequences = 4096;
  a.n_rows = 1 << 27;
  EXPECT_EQ(plan_of(a).n_work, int64_t{1} << 30);
}

TEST(AttendPlan, WorkspaceHoldsTheWorkAndItsCounts) {
  const AttendPlan plan = plan_of(legal_args());
  EXPECT_EQ(plan.work_bytes, (1024 + 3 * 8) * 48);
  EXPECT_EQ(plan.workspace_bytes, 50432);  // 50304 + 8, in steps of 256
  EXPECT_EQ(attend_workspace_bytes(legal_args()).value(), plan.workspace_bytes);
  AttendArgs full = legal_args();
  full.sequences = address<Sequence>(0x5000);
  full.n_rows = 2;  // 1024 + 16 items are 195 steps: the counts begin another
  EXPECT_EQ(plan_of(full).workspace_bytes, 50176);
}

// Beside it, a call at 1M keys needs its routes: at 5 % and 128 x 128, 54 million blocks of four bytes.
TEST(AttendPlan, WorkspaceAtAMillionKeysIsSmall) {
  AttendArgs a = legal_args();
  a.q.heads = a.out.heads = 32;
  a.q.tokens = a.out.tokens = a.k.tokens = a.v.tokens = int64_t{1} << 20;
  EXPECT_EQ(plan_of(a).workspace_bytes, 12632320);
}

TEST(AttendPlan, ScaleIsInBits) {
  AttendArgs a = legal_args();
  EXPECT_FLOAT_EQ(plan_of(a).scale_log2, std::numbers::log2e_v<float> / std::sqrt(128.0F));
  a.scale = 0.25;
  EXPECT_FLOAT_EQ(plan_of(a).scale_log2, std::numbers::log2e_v<float> / 4);
  for (const float extreme : {1e-37F, 1e38F}) {
    a.scale = extreme;
    EXPECT_TRUE(std::isnormal(plan_of(a).scale_log2)) << extreme;
  }
}

// What PyTorch says of an axis with one element may be anything.
TEST(AttendPlan, TheStrideOfAnAxisOfOneDoesNotMatter) {
  AttendArgs a = legal_args();
  a.q = {a.q.data, DType::kBF16, 1, 1, 128, 1, 7};
  a.out = {a.out.data, DType::kBF16, 1, 1, 128, 0, -5};
  a.k.heads = a.v.heads = 1;
  plan_of(a);
}

TEST(AttendPlan, HeadMajorAndPaddedStridesAreLegal) {
  AttendArgs a = legal_args();
  a.q.token_stride = 128, a.q.head_stride = 300 * 128;
  a.k.token_stride = 2 * 136, a.k.head_stride = 136;
  plan_of(a);
}

TEST(Attend, NamesTheWorkspaceThatItNeeds) {
  support::expect_error(attend(legal_args(), nullptr, 1 << 20, nullptr), Code::kInvalidArgument,
                        "attend: workspace_bytes is 0; this call needs 50432");
  support::expect_error(attend(legal_args(), address<std::byte>(0x10000), 50431, nullptr),
                        Code::kInvalidArgument, "attend: workspace_bytes is 50431; this call needs 50432");
  support::expect_error(attend(legal_args(), address<std::byte>(0x10010), 50432, nullptr),
                        Code::kInvalidArgument, "attend: workspace is not aligned to 256 bytes; move it");
}

// The runtime's words differ with what is missing: driver or device.
TEST(Attend, WithoutADeviceItIsADeviceError) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
    GTEST_SKIP() << "this machine has a CUDA device";
  const Status status = attend(legal_args(), address<std::byte>(0x10000), 50432, nullptr);
  EXPECT_EQ(status.code(), Code::kDeviceError);
  EXPECT_TRUE(status.message().starts_with("cuda: ")) << status.message();
  EXPECT_NE(status.message().find(" failed: "), std::string::npos) << status.message();
}

}  // namespace
}  // namespace routerelay::cuda
