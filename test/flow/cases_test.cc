// SPDX-License-Identifier: Apache-2.0
// Faults that users of other attention libraries reported, as tests of attend on every back end. The ids are those of
// the list they were collected in; values are N(0, 1) in bf16 unless a case says otherwise.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <functional>
#include <memory>

#include "core/merge.h"
#include "routerelay/options.hpp"
#include "support/backends.h"
#include "support/exec.h"
#include "support/matches.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Backend;
using support::backends;
using support::exact_attention;
using support::expect_matches;
using support::full_routes;
using support::listed_full_routes;
using support::make_routes;
using support::Problem;
using support::ProblemArgs;
using support::random_routes;
using support::with_dtype;

void attend(const Backend& backend, Problem& p, const Routes& routes) {
  support::TestExec t(2, backend.isa);
  p.poison();
  RR_ASSERT_OK(backend.stages->attend(p.attend_args(routes), t.exec));
}

// Every back end against one float64 softmax over the same route.
void check(Problem& p, const Routes& routes) {
  const auto exact = exact_attention(p, routes);
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.name());
    SCOPED_TRACE(testing::Message() << "q " << p.q.view.tokens << ", k " << p.k.view.tokens << ", heads "
                                    << p.q.view.heads << "/" << p.k.view.heads << " x " << p.q.view.head_dim);
    attend(backend, p, routes);
    expect_matches(p, exact, backend.tolerance(p));
  }
}
void check_share(const ProblemArgs& args, double share) {
  Problem p(args);
  check(p, share == 1 ? full_routes() : random_routes(p.rows, args.q_heads, share, args.seed));
}

ProblemArgs bf16(ProblemArgs args) {
  return with_dtype(std::move(args), DType::kBF16);
}
// Queries that see every key: an offset behind the last one.
ProblemArgs non_causal(ProblemArgs args) {
  args.sequences = {{0, args.q_tokens, 0, args.k_tokens, args.k_tokens}};
  return args;
}

TEST(Cases, SH1_UnalignedLengths) {
  for (int64_t s = 1; s <= 300; ++s) check_share(bf16({.q_tokens = s, .k_tokens = s}), s % 2 == 0 ? 1 : 0.5);
  for (int64_t s : {1, 66, 129})
    check_share(bf16({.q_tokens = s, .k_tokens = s, .q_heads = 32, .head_dim = 128}), 0.5);
  for (int64_t s : {4095, 4097})  // the last rows
    for (double share : {1.0, 0.5})
      check_share(bf16({.q_tokens = s % 64 + 64, .k_tokens = s, .head_dim = 128}), share);
}

TEST(Cases, SH2_NonCausalLengthThatIs8Mod128) {
  for (double share : {1.0, 0.25})
    check_share(non_causal(bf16({.q_tokens = 200, .k_tokens = 1112, .q_heads = 8, .head_dim = 128})), share);
}

TEST(Cases, SH3_OneTokenShortOfABlockWithNothingDropped) {
  for (int block : {64, 128})
    for (int64_t s : {63, 64, 65, 127, 129, 4095}) {
      Problem p(bf16({.q_tokens = std::min<int64_t>(s, 70),
                      .k_tokens = s,
                      .q_heads = 4,
                      .kv_heads = 1,
                      .head_dim = 128,
                      .q_block = block,
                      .k_block = block}));
      check(p, listed_full_routes(p.rows, 4));
    }
}

TEST(Cases, SH4_SinkAndWindowAtShortLengths) {
  for (int64_t s = 1; s <= 1000; s += 37) {
    Problem p(bf16({.q_tokens = s, .k_tokens = s, .q_heads = 2}));
    check(p, make_routes(p.rows, 2, [&](int64_t, int64_t row, int32_t block) {
            return block == 0 || block + 1 >= p.rows.rows[static_cast<size_t>(row)].diagonal;
          }));
  }
}

TEST(Cases, SH6_ListsOfAnyLength) {
  Problem p(bf16({.q_tokens = 9, .k_tokens = 65536, .q_heads = 2, .kv_heads = 1}));
  for (int32_t length : {1, 2, 3, 5, 31, 33, 96, 192, 333, 1000, 1024})
    check(p, make_routes(p.rows, 2, [&](int64_t, int64_t, int32_t block) {
            return block * length / 1024 != (block + 1) * length / 1024;  // spread evenly, `length` of 1024
          }));
}

TEST(Cases, SH7_BlocksOf64And128) {
  for (int block : {64, 128})
    for (int64_t head_dim : {64, 128})
      check_share(bf16({.q_tokens = 400,
                        .k_tokens = 1000,
                        .q_heads = 4,
                        .kv_heads = 2,
                        .head_dim = head_dim,
                        .q_block = block,
                        .k_block = block}),
                  0.3);
}

TEST(Cases, SH8_VariableRowsAreRefusedByName) {
  Options options;
  options.q_block = 2;
  support::expect_error(options.check(), Code::kInvalidArgument, "options: q_block is 2; legal: 64, 128");
}

TEST(Cases, SH9_AsymmetricBlocksAndWideHeads) {
  for (const auto& [q_block, k_block] : std::array<std::array<int, 2>, 3>{{{64, 128}, {128, 64}, {64, 64}}})
    for (int64_t head_dim : {80, 256})
      check_share(bf16({.q_tokens = 300,
                        .k_tokens = 500,
                        .q_heads = 2,
                        .kv_heads = 1,
                        .head_dim = head_dim,
                        .q_block = q_block,
                        .k_block = k_block}),
                  0.5);
  LayerArgs args = Problem({}).layer_args();
  args.q.head_dim = 192;
  support::expect_error(check_layer(args), Code::kInvalidArgument,
                        "layer: q.head_dim is 192; legal: 64, 80, 96, 128, 256; pad the heads");
}

TEST(Cases, GQ1_OddGroupsReadTheirOwnKvHead) {
  ProblemArgs args = bf16({.q_tokens = 1024, .k_tokens = 1024, .q_heads = 12, .kv_heads = 2});
  args.sequences = {{0, 512, 0, 512, 0}, {512, 512, 512, 512, 0}};
  Problem p(args);
  p.v.fill([](int64_t, int64_t h, int64_t) { return h + 1; });
  const Routes routes = make_routes(p.rows, 12, [&](int64_t h, int64_t row, int32_t block) {
    return row != p.rows.size() - 1 &&
           (block + h / 6) % 2 == 0;  // one route per KV head, the last row's empty
  });
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.name());
    attend(backend, p, routes);
    for (int64_t h = 0; h < 12; ++h)
      for (int64_t t = 0; t < 1024; ++t) {
        const bool empty =
            t >= 1024 - 64 || (h >= 6 && t % 512 < 64);  // odd blocks only: nothing in the first row
        const float lse = p.lse_log2[static_cast<size_t>(h * 1024 + t)];
        ASSERT_NEAR(p.out.get(t, h, 63), empty ? 0 : h / 6 + 1, 1e-2) << "head " << h << ", query " << t;
        ASSERT_EQ(std::isinf(lse), empty) << "head " << h << ", query " << t;
      }
  }
}

TEST(Cases, GQ2_FewHeads) {
  for (const auto& [q_heads, kv_heads] :
       std::array<std::array<int64_t, 2>, 5>{{{8, 1}, {7, 7}, {1, 1}, {3, 1}, {5, 5}}})
    check_share(
        bf16({.q_tokens = 100, .k_tokens = 400, .q_heads = q_heads, .kv_heads = kv_heads, .head_dim = 128}),
        1);
}

TEST(Cases, GQ3_HalvesMergedByLseAreTheWhole) {
  const ProblemArgs args{
      .q_tokens = 40, .k_tokens = 1024, .q_heads = 8, .kv_heads = 2, .q_block = 128, .k_block = 128};
  Problem whole(args), left(args), right(args);
  const auto blocks = [&](const Problem& p, int32_t begin, int32_t end) {
    return make_routes(p.rows, 8,
                       [=](int64_t, int64_t, int32_t block) { return block >= begin && block < end; });
  };
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.name());
    attend(backend, whole, blocks(whole, 0, 8));
    attend(backend, left, blocks(left, 0, 4));
    attend(backend, right, blocks(right, 4, 8));
    for (int64_t t = 0; t < 40; ++t)
      for (int64_t h = 0; h < 8; ++h) {
        const auto at = static_cast<size_t>(h * 40 + t);
        const auto row = [&](const Problem& p) {
          return PartialAttention{reinterpret_cast<const float*>(p.out.view.at(t, h)), p.lse_log2[at]};
        };
        const std::array<PartialAttention, 2> parts = {row(left), row(right)};
        std::array<float, 64> out{};
        ASSERT_NEAR(merge_partials(parts, 64, out.data()), whole.lse_log2[at], 2e-5);
        for (int64_t c = 0; c < 64; ++c)
          ASSERT_NEAR(out[static_cast<size_t>(c)], whole.out.get(t, h, c), 2e-5);
      }
  }
}

TEST(Cases, CO4_SinkBlockAndWindowInBothHalfTypes) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Problem p(
        with_dtype({.q_tokens = 200, .k_tokens = 2000, .q_heads = 4, .kv_heads = 1, .head_dim = 128}, dtype));
    check(p, make_routes(p.rows, 4, [&](int64_t, int64_t row, int32_t block) {
            return block == 0 || block + 16 >= p.rows.rows[static_cast<size_t>(row)].diagonal;
          }));
  }
}

TEST(Cases, VP1_RaggedLengthsWithFreshAllocations) {
  ProblemArgs args = bf16({.q_tokens = 833, .k_tokens = 833, .q_heads = 2});
  args.sequences = {{0, 500, 0, 500, 0}, {500, 333, 500, 333, 0}};
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.name());
    std::unique_ptr<Problem> first;
    for (int repeat = 0; repeat < 10; ++repeat) {
      auto p = std::make_unique<Problem>(args);
      attend(backend, *p, random_routes(p->rows, 2, 0.5, 3));
      ASSERT_TRUE(p->out.guards_intact());
      if (first) {
        ASSERT_TRUE(p->out.same_bits(first->out)) << repeat;
      } else {
        first = std::move(p);
      }
    }
  }
}

TEST(Cases, VP2_SmallBatchTwoBlocksPerRow) {
  ProblemArgs args =
      bf16({.q_tokens = 4 * 507, .k_tokens = 4 * 507, .q_heads = 8, .kv_heads = 2, .head_dim = 128});
  for (int64_t i = 0; i < 4; ++i) args.sequences.push_back({i * 507, 507, i * 507, 507, 0});
  Problem p(args);
  check(p, make_routes(p.rows, 8, [&](int64_t h, int64_t row, int32_t block) {
          const int32_t diagonal = p.rows.rows[static_cast<size_t>(row)].diagonal;
          return block == diagonal || block == (h + row) % (diagonal + 1);
        }));
}

TEST(Cases, VP3_FarOffset) {
  check_share(bf16({.q_tokens = 64, .k_tokens = 65536, .q_heads = 2, .kv_heads = 1}), 0.1);
}

TEST(Cases, VP4_DecodeSizes) {
  for (int64_t q : {1, 2, 7, 127}) {
    ProblemArgs args =
        bf16({.q_tokens = 3 * q, .k_tokens = 3000, .q_heads = 8, .kv_heads = 2, .head_dim = 128});
    for (int64_t i = 0; i < 3; ++i) args.sequences.push_back({i * q, q, i * 1000, 1000, 1000 - q});
    check_share(args, 0.5);
  }
}

TEST(Cases, NU2_HeadDim64InBothHalfTypes) {
  for (DType dtype : {DType::kBF16, DType::kF16})
    check_share(with_dtype({.q_tokens = 300, .k_tokens = 777, .q_heads = 4, .kv_heads = 4}, dtype), 1);
}

// A stride of 0 shares one KV head or one key between many, without a copy.
TEST(Cases, LA1_SharedByStrideZeroIsTheExpandedCopy) {
  Problem expanded(bf16({.q_tokens = 65, .k_tokens = 130, .q_heads = 4, .kv_heads = 4}));
  for (support::OwnedTensor* t : {&expanded.k, &expanded.v})
    t->fill([&](int64_t token, int64_t, int64_t c) { return t->get(token, 0, c); });
  Problem shared(bf16({.q_tokens = 65, .k_tokens = 130, .q_heads = 4, .kv_heads = 4}));
  Tensor k = expanded.k.view, v = expanded.v.view;
  k.head_stride = v.head_stride = 0;
  const Routes routes = full_routes();
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.name());
    attend(backend, expanded, routes);
    support::TestExec t(2, backend.isa);
    RR_ASSERT_OK(backend.stages->attend({shared.q.view, k, v, shared.rows, routes, shared.scale,
                                         shared.out.mutable_view, shared.lse_log2.data()},
                                        t.exec));
    EXPECT_TRUE(shared.out.same_bits(expanded.out));
  }
}

// LG-1: one key every 2^25 elements, so that offsets pass 2^31 and 2^32. Only touched pages take memory.
TEST(Cases, LG1_OffsetsPast32Bits) {
  constexpr int64_t kStride = int64_t{1} << 25, kTokens = 130, kBytes = kTokens * kStride * 2 + 4096;
  void* memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "this machine does not hand out 8 GiB of address space";
  Problem p(bf16({.q_tokens = 10, .k_tokens = kTokens}));
  // Keys and values take turns in one mapping: v lies half a stride behind k.
  const MutableTensor k{static_cast<std::byte*>(memory), DType::kBF16, kTokens, 1, 64, kStride, 64};
  MutableTensor v = k;
  v.data += kStride;
  for (int64_t t = 0; t < kTokens; ++t) {
    std::memcpy(k.at(t, 0), p.k.view.at(t, 0), 64 * 2);
    std::memcpy(v.at(t, 0), p.v.view.at(t, 0), 64 * 2);
  }
  const Tensor far_k{k.data, k.dtype, kTokens, 1, 64, kStride, 64},
      far_v{v.data, v.dtype, kTokens, 1, 64, kStride, 64};
  const Routes routes = full_routes();
  const auto exact = exact_attention(p, routes);
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.name());
    support::TestExec t(2, backend.isa);
    p.poison();
    RR_ASSERT_OK(backend.stages->attend(
        {p.q.view, far_k, far_v, p.rows, routes, p.scale, p.out.mutable_view, p.lse_log2.data()}, t.exec));
    expect_matches(p, exact, backend.tolerance(p));
  }
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace routerelay
