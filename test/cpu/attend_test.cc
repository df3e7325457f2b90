// SPDX-License-Identifier: Apache-2.0
// The CPU attend on every instruction set that the machine has, against an independent float64 softmax over the
// same route. Tolerance by peer: twice what a plain computation in the kernel's precision errs by.
#include "cpu/attend/attend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "cpu/attend/plan.h"
#include "cpu/attend_peer.h"
#include "support/exec.h"
#include "support/matches.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::full_routes;
using support::Layout;
using support::Problem;
using support::ProblemArgs;
using support::random_routes;
using support::TestExec;
using support::with_dtype;

constexpr DType kKvDtypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

ProblemArgs square(int64_t tokens, int64_t q_heads, int64_t kv_heads, int64_t head_dim, DType dtype) {
  return with_dtype({.q_tokens = tokens,
                     .k_tokens = tokens,
                     .q_heads = q_heads,
                     .kv_heads = kv_heads,
                     .head_dim = head_dim},
                    dtype);
}

int rows_per_item(const Problem& p, Isa isa, int threads) {
  return cpu::choose({.rows = p.rows,
                      .isa = isa,
                      .kv_dtype = p.k.view.dtype,
                      .head_dim = p.q.view.head_dim,
                      .q_heads = p.q.view.heads,
                      .kv_heads = p.k.view.heads,
                      .threads = threads})
      .rows_per_item;
}

class AttendTest : public support::AttendOnIsa {};

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendTest, support::kEveryIsa, support::CaseName());

TEST_P(AttendTest, EveryLengthAndDtype) {
  for (const DType dtype : kKvDtypes)
    for (const int64_t tokens : {0, 1, 2, 15, 17, 63, 64, 65, 127, 128, 129, 300}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << dtype_name(dtype));
      Problem p(square(tokens, 2, 1, 64, dtype));
      expect_exact(p, full_routes());
    }
}

TEST_P(AttendTest, AThousandTokens) {
  for (const int block : {64, 128}) {
    ProblemArgs args = square(1000, 2, 1, 128, DType::kBF16);
    args.q_block = args.k_block = block;
    Problem dense(args), sparse(args);
    expect_exact(dense, full_routes());
    expect_exact(sparse, random_routes(sparse.rows, 2, 0.3, 5));
  }
}

TEST_P(AttendTest, HeadsAndGroups) {
  for (const auto& [q_heads, kv_heads] :
       {std::pair{1, 1}, {3, 1}, {3, 3}, {9, 3}, {14, 2}, {32, 4}, {8, 1}, {10, 2}, {6, 1}, {4, 2}}) {
    SCOPED_TRACE(testing::Message() << q_heads << " over " << kv_heads << " heads");
    Problem p(square(70, q_heads, kv_heads, 64, DType::kF32));
    expect_exact(p, full_routes());
  }
}

// Each KV head holds its own constant: a wrong head shows as a wrong constant (cases.md GQ-1).
TEST_P(AttendTest, ReadsTheRightKvHead) {
  Problem p(square(130, 12, 2, 64, DType::kBF16));
  p.v.fill([](int64_t, int64_t head, int64_t) { return 1.0 + static_cast<double>(head); });
  RR_ASSERT_OK(attend(p, random_routes(p.rows, 12, 0.5, 3)));
  for (int64_t t = 0; t < 130; ++t)
    for (int64_t h = 0; h < 12; ++h) ASSERT_NEAR(p.out.get(t, h, 5), 1 + h / 6, 1e-2) << t << " " << h;
}

TEST_P(AttendTest, HeadDims) {
  for (const int64_t head_dim : {64, 80, 96, 128, 256})
    for (const DType dtype : kKvDtypes) {
      if (head_dim % block_elements(dtype) != 0) continue;
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " of " << dtype_name(dtype));
      Problem p(square(150, 4, 2, head_dim, dtype));
      expect_exact(p, full_routes());
    }
}

// The llama.cpp case: f32 queries and output over an f16 or q8_0 cache; and every other mix.
TEST_P(AttendTest, DtypesAreIndependent) {
  for (const DType q : {DType::kF32, DType::kBF16, DType::kF16})
    for (const DType kv : kKvDtypes)
      for (const DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(testing::Message() << dtype_name(q) << " " << dtype_name(kv) << " " << dtype_name(out));
        ProblemArgs args{
            .q_tokens = 40, .k_tokens = 100, .q_heads = 2, .q_dtype = q, .kv_dtype = kv, .out_dtype = out};
        Problem p(args);
        expect_exact(p, full_routes());
      }
}

TEST_P(AttendTest, Layouts) {
  for (const Layout layout : {Layout::kTokenMajor, Layout::kHeadMajor, Layout::kPadded})
    for (const auto& [head_dim, dtype] : {std::pair{80, DType::kF16}, {96, DType::kQ8_0}}) {
      SCOPED_TRACE(dtype_name(dtype));
      ProblemArgs args = square(150, 6, 3, head_dim, dtype);
      args.layout = layout;
      Problem p(args);
      expect_exact(p, random_routes(p.rows, 6, 0.5, 1));
    }
}

TEST_P(AttendTest, Offsets) {
  for (const int64_t offset : {1, 63, 64, 65, 127, 128, 700})
    for (const int64_t queries : {1, 7, 64, 128, 130}) {
      SCOPED_TRACE(testing::Message() << queries << " queries at " << offset);
      Problem p(with_dtype({.q_tokens = queries, .k_tokens = queries + offset, .q_heads = 2}, DType::kBF16));
      expect_exact(p, full_routes());
      p.poison();
      expect_exact(p, random_routes(p.rows, 2, 0.5, 9));
    }
}

// More queries than keys, every key visible to all, an empty cache: what sequences may say.
TEST_P(AttendTest, OddSequences) {
  ProblemArgs args{.q_tokens = 200, .k_tokens = 100, .q_heads = 2};
  args.sequences = {{0, 70, 0, 90, 0}, {70, 30, 0, 40, 1000}, {100, 10, 0, 0, 0}, {120, 70, 20, 80, 5}};
  for (const int block : {64, 128}) {
    args.q_block = args.k_block = block;
    Problem p(args);
    expect_exact(p, full_routes());
  }
}

// Tokens 5 to 9, 75 to 99 and the last belong to no sequence: expect_matches wants their NaN untouched.
TEST_P(AttendTest, RaggedBatch) {
  ProblemArgs args = square(400, 4, 2, 64, DType::kF32);
  args.sequences = {{0, 5, 0, 5, 0}, {10, 65, 5, 70, 5}, {100, 200, 100, 250, 50}, {300, 1, 350, 50, 49}};
  for (const int threads : {1, 3}) {
    Problem p(args);
    expect_exact(p, full_routes(), threads);
    p.poison();
    expect_exact(p, random_routes(p.rows, 4, 0.4, 2), threads);
  }
}

TEST_P(AttendTest, EmptyRouteGivesZeroAndMinusInfinity) {
  Problem p(square(200, 2, 1, 64, DType::kBF16));
  const Routes routes = support::make_routes(
      p.rows, 2, [](int64_t head, int64_t row, int32_t) { return !(head == 1 && row == 2); });
  expect_exact(p, routes);
  EXPECT_EQ(p.out.get(128, 1, 0), 0.0f);
  EXPECT_EQ(p.lse_log2[200 + 128], -kInf);
}

TEST_P(AttendTest, DenseRowsNeedNoList) {
  Problem p(square(200, 2, 1, 64, DType::kF32)), q(square(200, 2, 1, 64, DType::kF32));
  for (Row& row : p.rows.rows) row.dense = true;
  RR_ASSERT_OK(attend(p, support::make_routes(p.rows, 2, [](int64_t, int64_t, int32_t) { return false; })));
  RR_ASSERT_OK(attend(q, full_routes()));
  EXPECT_TRUE(p.out.same_bits(q.out));
}

TEST_P(AttendTest, ListingEveryBlockIsDense) {
  Problem p(square(300, 4, 2, 96, DType::kF16)), q(square(300, 4, 2, 96, DType::kF16));
  RR_ASSERT_OK(attend(p, full_routes()));
  RR_ASSERT_OK(attend(q, support::listed_full_routes(q.rows, 4)));
  EXPECT_TRUE(p.out.same_bits(q.out));
  EXPECT_EQ(p.lse_log2, q.lse_log2);
}

// Scores that climb along the keys move the maximum again and again; huge ones leave one key standing, even where a
// last place of theirs is worth thousands.
TEST_P(AttendTest, ExtremeScores) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const double size : {1e-30, 1.0, 30.0, 3000.0, 1e9, 1e12, 1e30, 1e36}) {
      SCOPED_TRACE(testing::Message() << size << ", " << dtype_name(dtype));
      Problem p(square(300, 1, 1, 64, dtype));
      p.q.fill([&](int64_t, int64_t, int64_t c) { return c == 0 ? size : 0; });
      p.k.fill([&](int64_t t, int64_t, int64_t) { return static_cast<double>(t % 97) / 4; });
      expect_exact(p, full_routes());
    }
}

TEST_P(AttendTest, ExtremeScales) {
  for (const float scale : {1e-37f, 1e-30f, 1e9f, 1e30f, 1e38f}) {
    SCOPED_TRACE(scale);
    Problem p(square(300, 2, 1, 64, DType::kF32));
    p.scale = scale;
    const auto exact = support::exact_attention(p, full_routes());
    RR_ASSERT_OK(attend(p, full_routes()));
    for (int64_t t = 0; t < 300; ++t)
      for (int64_t c = 0; c < 64; ++c) ASSERT_NEAR(p.out.get(t, 1, c), exact.out_at(t, 1, c), 1e-5) << t;
  }
}

// NaN and infinities must stay with the queries that see them: here the last 20 keys, one block in the middle that the
// route leaves out, and a whole batch mate.
TEST_P(AttendTest, NonFiniteValuesDoNotSpread) {
  for (const float poison : {kNan, kInf, -kInf})
    for (const DType dtype : kKvDtypes) {
      ProblemArgs args = square(300, 4, 2, 64, dtype);
      args.sequences = {{0, 200, 0, 200, 0}, {200, 100, 200, 100, 0}};
      Problem clean(args), dirty(args);
      const auto routes = support::make_routes(clean.rows, 4, [](int64_t, int64_t row, int32_t block) {
        return row > 3 || block != 1 || row == 1;
      });
      const auto bad = [](int64_t t) { return (t >= 64 && t < 128) || t >= 180; };
      for (int64_t t = 0; t < 300; ++t)
        for (int64_t h = 0; bad(t) && h < 2; ++h)
          for (int64_t c = 0; c < 64; c += 7) {
            dirty.k.set(t, h, c, poison);
            dirty.v.set(t, h, c, poison);
          }
      RR_ASSERT_OK(attend(clean, routes));
      RR_ASSERT_OK(attend(dirty, routes));
      for (int64_t t = 0; t < 180; ++t)
        for (int64_t h = 0; !bad(t) && h < 4; ++h) {
          ASSERT_EQ(clean.lse_log2[h * 300 + t], dirty.lse_log2[h * 300 + t]) << t;
          for (int64_t c = 0; c < 64; ++c) ASSERT_EQ(clean.out.get(t, h, c), dirty.out.get(t, h, c)) << t;
        }
      EXPECT_FALSE(std::isfinite(dirty.out.get(190, 0, 0)));
    }
}

// What a q8_0 block may hold that no quantiser writes: a scale that is subnormal, negative, zero or the largest f16,
// and -128 steps.
TEST_P(AttendTest, EveryQ8Block) {
  Problem p(square(100, 2, 1, 64, DType::kQ8_0));
  p.scale = 1e-6f;
  const uint16_t scales[] = {0x0001, 0x03ff, 0x8400, 0xbc00, 0x0000, 0x8000, 0x7bff};
  for (int64_t t = 0; t < 100; ++t)
    for (int64_t block = 0; block < 2; ++block) {
      std::byte* k = p.k.mutable_view.at(t, 0) + block * kQ8Bytes;
      std::memcpy(k, &scales[(t + block) % 7], 2);
      k[2 + t % 32] = std::byte{0x80};
      k[2 + (t + 9) % 32] = std::byte{0x7f};
      std::memcpy(p.v.mutable_view.at(t, 0) + block * kQ8Bytes, &scales[(t + block) % 6], 2);
    }
  expect_exact(p, full_routes());
}

TEST_P(AttendTest, NonFiniteQueryStaysInItsRow) {
  Problem clean(square(100, 2, 1, 64, DType::kBF16)), dirty(square(100, 2, 1, 64, DType::kBF16));
  dirty.q.set(50, 1, 3, kNan);
  RR_ASSERT_OK(attend(clean, full_routes()));
  RR_ASSERT_OK(attend(dirty, full_routes()));
  for (int64_t t = 0; t < 100; ++t)
    for (int64_t h = 0; h < 2; ++h) {
      if (t == 50 && h == 1) continue;
      for (int64_t c = 0; c < 64; ++c) ASSERT_EQ(clean.out.get(t, h, c), dirty.out.get(t, h, c));
    }
  EXPECT_TRUE(std::isnan(dirty.out.get(50, 1, 0)));
}

TEST_P(AttendTest, SameBitsForAnyThreads) {
  const ProblemArgs args = square(333, 8, 2, 128, DType::kBF16);
  Problem one(args);
  RR_ASSERT_OK(attend(one, full_routes(), 1));
  for (const int threads : {2, 3, 7}) {
    Problem many(args);
    RR_ASSERT_OK(attend(many, full_routes(), threads));
    EXPECT_TRUE(one.out.same_bits(many.out)) << threads;
    EXPECT_EQ(one.lse_log2, many.lse_log2) << threads;
  }
}

// One thread lets several rows share a pass, seven do not. Some rows between are routed, and later keys hold poison.
TEST_P(AttendTest, SameBitsWhenRowsShareAPass) {
  for (const int64_t head_dim : {64, 128}) {
    const ProblemArgs args = square(1500, 2, 2, head_dim, DType::kBF16);
    Problem shared(args), apart(args);
    for (Problem* p : {&shared, &apart}) {
      for (size_t r = 0; r < p->rows.rows.size(); ++r) p->rows.rows[r].dense = r % 7 != 3;
      for (int64_t t = 1100; t < 1500; t += 9) p->v.set(t, 1, 5, kInf);
    }
    const Routes routes = random_routes(shared.rows, 2, 0.3, 11);
    EXPECT_EQ(rows_per_item(shared, GetParam(), 1), 2);
    RR_ASSERT_OK(attend(shared, routes, 1));
    RR_ASSERT_OK(attend(apart, routes, 7));
    EXPECT_TRUE(shared.out.same_bits(apart.out)) << head_dim;
    EXPECT_EQ(shared.lse_log2, apart.lse_log2) << head_dim;
    for (int64_t t = 0; t < 1100; ++t) ASSERT_TRUE(std::isfinite(shared.out.get(t, 1, 5))) << t;
    EXPECT_FALSE(std::isfinite(shared.out.get(1499, 1, 5)));
  }
}

// As an audit asks: every other row of a prompt, their queries side by side.
TEST_P(AttendTest, RowsWithGapsShareNoPass) {
  const ProblemArgs args = square(2112, 1, 1, 64, DType::kBF16);
  Problem whole(args), sample(args);
  std::vector<Row> rows;
  for (size_t r = 1; r < sample.rows.rows.size(); r += 2) {
    Row row = sample.rows.rows[r];
    const int64_t from = std::exchange(row.q_begin, static_cast<int64_t>(rows.size()) * 64);
    for (int64_t i = 0; i < 64; ++i)
      for (int64_t c = 0; c < 64; ++c) sample.q.set(row.q_begin + i, 0, c, whole.q.get(from + i, 0, c));
    rows.push_back(row);
  }
  sample.rows.rows = rows;
  EXPECT_EQ(rows_per_item(sample, GetParam(), 1), 2);
  RR_ASSERT_OK(attend(whole, full_routes(), 1));
  RR_ASSERT_OK(attend(sample, full_routes(), 1));
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t i = 0; i < 64; ++i)
      ASSERT_EQ(sample.lse_log2[r * 64 + i], whole.lse_log2[rows[r].position + i]) << r;
}

TEST_P(AttendTest, SameBitsWithBatchMates) {
  ProblemArgs args = square(500, 4, 2, 64, DType::kF16);
  args.sequences = {{0, 100, 0, 100, 0}, {100, 150, 100, 333, 40}, {260, 200, 0, 500, 300}};
  Problem batch(args);
  RR_ASSERT_OK(attend(batch, full_routes()));
  for (const Sequence& s : args.sequences) {
    ProblemArgs single = args;
    single.sequences = {s};
    Problem alone(single);
    RR_ASSERT_OK(attend(alone, full_routes()));
    for (int64_t t = s.q_begin; t < s.q_begin + s.q_len; ++t)
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t c = 0; c < 64; ++c) ASSERT_EQ(batch.out.get(t, h, c), alone.out.get(t, h, c)) << t;
  }
}

TEST_P(AttendTest, SameBitsInChunksOfWholeRows) {
  Problem whole(square(400, 2, 1, 64, DType::kBF16)), chunked(square(400, 2, 1, 64, DType::kBF16));
  RR_ASSERT_OK(attend(whole, full_routes()));
  for (int64_t begin = 0; begin < 400; begin += 128) {
    const int64_t count = std::min<int64_t>(128, 400 - begin);
    chunked.sequences = {{begin, count, 0, begin + count, begin}};
    chunked.rows = make_rows(chunked.sequences, 64, 64);
    RR_ASSERT_OK(attend(chunked, full_routes()));
  }
  EXPECT_TRUE(whole.out.same_bits(chunked.out));
  EXPECT_EQ(whole.lse_log2, chunked.lse_log2);
}

// Two calls over halves of the blocks, merged by their LSE, are one call over all of them (cases.md GQ-3).
TEST_P(AttendTest, HalvesMergeByLse) {
  const ProblemArgs args = square(512, 4, 1, 128, DType::kF32);
  Problem whole(args), early(args), late(args);
  RR_ASSERT_OK(attend(whole, full_routes()));
  const auto half = [](const Rows& rows, bool first) {
    return support::make_routes(rows, 4, [=](int64_t, int64_t, int32_t b) { return (b < 4) == first; });
  };
  RR_ASSERT_OK(attend(early, half(early.rows, true)));
  RR_ASSERT_OK(attend(late, half(late.rows, false)));
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t t = 0; t < 512; ++t) {
      const double a = early.lse_log2[h * 512 + t], b = late.lse_log2[h * 512 + t];
      const double top = std::max(a, b), x = std::exp2(a - top), y = std::exp2(b - top);
      ASSERT_NEAR(top + std::log2(x + y), whole.lse_log2[h * 512 + t], 1e-5);
      for (int64_t c = 0; c < 128; c += 17)
        ASSERT_NEAR((x * early.out.get(t, h, c) + y * late.out.get(t, h, c)) / (x + y),
                    whole.out.get(t, h, c), 1e-5);
    }
}

TEST_P(AttendTest, LseIsOptional) {
  Problem with(square(100, 2, 1, 64, DType::kF32)), without(square(100, 2, 1, 64, DType::kF32));
  RR_ASSERT_OK(attend(with, full_routes()));
  const Routes routes = full_routes();
  AttendArgs args = without.attend_args(routes);
  args.lse_log2 = nullptr;
  TestExec exec(2, GetParam());
  RR_ASSERT_OK(cpu::attend(args, exec.exec));
  EXPECT_TRUE(with.out.same_bits(without.out));
}

TEST_P(AttendTest, StopsWhenAsked) {
  Problem p(square(300, 4, 2, 64, DType::kF32));
  TestExec exec(2, GetParam());
  exec.exec.abort = [] { return true; };
  const Routes routes = full_routes();
  EXPECT_EQ(cpu::attend(p.attend_args(routes), exec.exec).code(), Code::kAborted);
}

// At most one packed KV head per thread, and the plan says what the call then takes.
TEST_P(AttendTest, WorkspaceIsBounded) {
  ProblemArgs args = square(2048, 8, 8, 64, DType::kBF16);
  args.sequences = {{0, 1500, 0, 1500, 0}, {1500, 548, 1500, 548, 0}};
  for (const int threads : {1, 2, 3}) {
    Problem p(args);
    TestExec exec(threads, GetParam());
    const Routes routes = full_routes();
    RR_ASSERT_OK(cpu::attend(p.attend_args(routes), exec.exec));
    const cpu::PlanArgs plan_args{.rows = p.rows,
                                  .isa = GetParam(),
                                  .kv_dtype = DType::kBF16,
                                  .head_dim = 64,
                                  .q_heads = 8,
                                  .kv_heads = 8,
                                  .threads = threads};
    EXPECT_LE(cpu::choose(plan_args).max_panels, threads * ceil_div(1500, 64));
    EXPECT_NEAR(static_cast<double>(exec.workspace.bytes()),
                static_cast<double>(cpu::workspace_bytes(plan_args)), 64.0 * (threads + 1));
  }
}

TEST(AttendPlan, UnknownHeadDimNamesTheLegalOnes) {
  RR_ASSERT_OK(cpu::supports(Isa::kAvx2, 128));
  support::expect_error(
      cpu::supports(Isa::kAvx2, 72), Code::kUnsupported,
      "attend: head_dim is 72; isa avx2 has 64, 80, 96, 128, 256; pad the head or add a line to "
      "src/cpu/attend/configs.def");
}

TEST(AttendPlan, KeysKeepTheirBits) {
  EXPECT_EQ(cpu::isa_for(Isa::kAmxBf16, DType::kF32), Isa::kAvx512);
  EXPECT_EQ(cpu::isa_for(Isa::kAvx512Bf16, DType::kF32), Isa::kAvx512);
  EXPECT_EQ(cpu::isa_for(Isa::kAvx512Bf16, DType::kF16), Isa::kAvx512);
  EXPECT_EQ(cpu::isa_for(Isa::kAvx512Bf16, DType::kBF16), Isa::kAvx512Bf16);
  EXPECT_EQ(cpu::isa_for(Isa::kAmxBf16, DType::kF16), Isa::kAmxBf16);
  EXPECT_EQ(cpu::isa_for(Isa::kAmxBf16, DType::kQ8_0), Isa::kAmxBf16);
  EXPECT_EQ(cpu::isa_for(Isa::kAvx512Bf16, DType::kQ8_0), Isa::kAvx512);
  EXPECT_EQ(cpu::isa_for(Isa::kAvx2, DType::kQ8_0), Isa::kAvx2);
  EXPECT_EQ(cpu::isa_for(Isa::kAvx2, DType::kF32), Isa::kAvx2);
}

TEST(AttendPlan, HeadsThenRowsShareAPassWhileEveryThreadIsBusy) {
  const Sequence many{0, 64 * 64, 0, 64 * 64, 0}, few{0, 64, 0, 64 * 64, 63 * 64};
  const Rows many_rows = make_rows({&many, 1}, 64, 64), few_rows = make_rows({&few, 1}, 64, 64);
  const auto plan_of = [](const Rows& rows, int64_t q_heads, int threads) {
    const cpu::Plan plan = cpu::choose({.rows = rows,
                                        .isa = Isa::kScalar,
                                        .head_dim = 64,
                                        .q_heads = q_heads,
                                        .kv_heads = 2,
                                        .threads = threads});
    return std::pair(plan.heads_per_item, plan.rows_per_item);
  };
  EXPECT_EQ(plan_of(many_rows, 8, 2), std::pair(4, 1));
  EXPECT_EQ(plan_of(many_rows, 4, 2), std::pair(2, 2));
  EXPECT_EQ(plan_of(many_rows, 2, 2), std::pair(1, 4));
  EXPECT_EQ(plan_of(many_rows, 2, 8), std::pair(1, 2));   // 128 items of one row, 8 for each thread
  EXPECT_EQ(plan_of(many_rows, 14, 2), std::pair(1, 4));  // 7 heads are more than an item holds
  EXPECT_EQ(plan_of(few_rows, 8, 2), std::pair(1, 1));
}

}  // namespace
}  // namespace routerelay
