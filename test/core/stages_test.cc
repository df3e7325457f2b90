// SPDX-License-Identifier: Apache-2.0
// The door of a layer: every kind of bad argument gets its sentence, every legal one passes.
#include "core/stages.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "support/problem.h"
#include "support/status.h"

namespace routerelay {
namespace {

using support::Layout;
using support::Problem;
using support::with_dtype;

class CheckLayer : public ::testing::Test {
 protected:
  void refuses(const std::function<void(LayerArgs&)>& spoil, const std::string& message) {
    LayerArgs args = problem.layer_args();
    spoil(args);
    support::expect_error(check_layer(args), Code::kInvalidArgument, "layer: " + message);
  }
  Problem problem{{.q_tokens = 10, .k_tokens = 20, .q_heads = 4, .kv_heads = 2}};
};

TEST_F(CheckLayer, AcceptsWhatIsLegal) {
  RR_ASSERT_OK(check_layer(problem.layer_args()));
  for (Layout layout : {Layout::kTokenMajor, Layout::kHeadMajor, Layout::kPadded}) {
    Problem p(with_dtype({.q_tokens = 3, .k_tokens = 5, .q_heads = 6, .kv_heads = 2, .layout = layout},
                         DType::kF16));
    RR_ASSERT_OK(check_layer(p.layer_args()));
  }
  LayerArgs plain = problem.layer_args();
  plain.sequences = {};
  plain.lse_log2 = nullptr;
  plain.scale = 0;
  RR_ASSERT_OK(check_layer(plain));
  for (int64_t head_dim : {64, 80, 96, 128, 256}) {
    Problem p({.q_tokens = 1, .k_tokens = 1, .head_dim = head_dim});
    RR_ASSERT_OK(check_layer(p.layer_args()));
  }
}

TEST_F(CheckLayer, AcceptsNoTokensAtAll) {
  LayerArgs args = Problem({.q_tokens = 0, .k_tokens = 0}).layer_args();
  args.q.data = args.k.data = args.v.data = nullptr;
  args.out.data = nullptr;
  args.lse_log2 = nullptr;
  args.sequences = {};
  RR_ASSERT_OK(check_layer(args));
}

TEST_F(CheckLayer, RefusesShapes) {
  refuses([](LayerArgs& a) { a.q.tokens = -1; }, "q.tokens is -1; legal: 0 to 4294967296");
  refuses([](LayerArgs& a) { a.k.tokens = int64_t{1} << 40; },
          "k.tokens is 1099511627776; legal: 0 to 4294967296");
  refuses([](LayerArgs& a) { a.q.heads = 0; }, "q.heads is 0; legal: 1 to 65536");
  refuses([](LayerArgs& a) { a.v.heads = 70000; }, "v.heads is 70000; legal: 1 to 65536");
  refuses([](LayerArgs& a) { a.q.head_dim = 72; },
          "q.head_dim is 72; legal: 64, 80, 96, 128, 256; pad the heads");
  refuses([](LayerArgs& a) { a.k.head_dim = a.v.head_dim = 80; }, "k.head_dim is 80; must be q's 64");
  refuses([](LayerArgs& a) { a.v.tokens = 19; }, "v is [19, 2, 64]; must be k's [20, 2, 64]");
  refuses([](LayerArgs& a) { a.v.heads = 1; }, "v is [20, 1, 64]; must be k's [20, 2, 64]");
  refuses([](LayerArgs& a) { a.k.heads = a.v.heads = 3; }, "k.heads is 3; must divide q.heads, which is 4");
  refuses([](LayerArgs& a) { a.out.tokens = 9; }, "out is [9, 4, 64]; must be q's [10, 4, 64]");
  refuses(
      [](LayerArgs& a) {
        a.sequences = {};
        a.k.tokens = a.v.tokens = 9;
      },
      "k.tokens is 9, q.tokens 10; without sequences the queries are the last of the keys");
}

TEST_F(CheckLayer, RefusesDtypesAndPointers) {
  refuses([](LayerArgs& a) { a.q.dtype = static_cast<DType>(9); }, "q.dtype is 9; legal: f32, bf16, f16");
  refuses([](LayerArgs& a) { a.k.dtype = static_cast<DType>(9); },
          "k.dtype is 9; legal: f32, bf16, f16, q8_0");
  refuses([](LayerArgs& a) { a.k.dtype = a.v.dtype = DType::kE4M3; },
          "k.dtype is e4m3; legal: f32, bf16, f16, q8_0; only attend on CUDA takes e4m3");
  refuses([](LayerArgs& a) { a.v.dtype = DType::kF16; }, "v.dtype is f16; must be k's f32");
  refuses([](LayerArgs& a) { a.k.data = nullptr; }, "k.data is null with 20 tokens");
  refuses([](LayerArgs& a) { a.out.data = nullptr; }, "out.data is null with 10 tokens");
  refuses([](LayerArgs& a) { a.q.data += 2; }, "q.data is not aligned to its f32 elements");
}

TEST_F(CheckLayer, RefusesQ8WhereItCannotBe) {
  const auto refuses_q8 = [](int64_t head_dim, const std::function<void(LayerArgs&)>& spoil,
                             const std::string& message) {
    Problem p({.q_tokens = 10, .k_tokens = 20, .q_heads = 4, .kv_heads = 2, .head_dim = 64});
    LayerArgs args = p.layer_args();
    args.k.dtype = args.v.dtype = DType::kQ8_0;
    RR_ASSERT_OK(check_layer(args));
    for (Tensor* t : {&args.q, &args.k, &args.v}) t->head_dim = head_dim;
    args.out.head_dim = head_dim;
    spoil(args);
    support::expect_error(check_layer(args), Code::kInvalidArgument, "layer: " + message);
  };
  refuses_q8(
      80, [](LayerArgs&) {},
      "k.head_dim is 80; legal for q8_0: multiples of 32; keep such keys and values in f16");
  refuses_q8(
      64, [](LayerArgs& a) { a.q.dtype = DType::kQ8_0; },
      "q.dtype is q8_0; legal: f32, bf16, f16; only k and v may be q8_0");
  refuses_q8(
      64, [](LayerArgs& a) { a.out.dtype = DType::kQ8_0; },
      "out.dtype is q8_0; legal: f32, bf16, f16; only k and v may be q8_0");
  refuses_q8(
      64, [](LayerArgs& a) { a.k.token_stride = 136; },
      "k strides are 136 (token) and 64 (head); legal for q8_0: multiples of 32 elements");
  refuses_q8(
      64, [](LayerArgs& a) { a.v.head_stride = 80; },
      "v strides are 128 (token) and 80 (head); legal for q8_0: multiples of 32 elements");
  refuses_q8(
      64, [](LayerArgs& a) { a.v.data += 1; }, "v.data is not aligned to its q8_0 elements");
  refuses_q8(
      64, [](LayerArgs& a) { a.v.dtype = DType::kF16; }, "v.dtype is f16; must be k's q8_0");
}

TEST_F(CheckLayer, RefusesNumbers) {
  refuses([](LayerArgs& a) { a.scale = -1; },
          "scale is -1; legal: 1e-37 to 1e+38, or 0 for 1/sqrt(head_dim)");
  refuses([](LayerArgs& a) { a.scale = 1e-40f; },
          "scale is 1e-40; legal: 1e-37 to 1e+38, or 0 for 1/sqrt(head_dim)");
  refuses([](LayerArgs& a) { a.scale = std::numeric_limits<float>::quiet_NaN(); },
          "scale is nan; legal: 1e-37 to 1e+38, or 0 for 1/sqrt(head_dim)");
  refuses([](LayerArgs& a) { a.scale = std::numeric_limits<float>::infinity(); },
          "scale is inf; legal: 1e-37 to 1e+38, or 0 for 1/sqrt(head_dim)");
  refuses([](LayerArgs& a) { a.layer = -2; }, "layer is -2; legal: -1 (unknown) or an index");
}

TEST_F(CheckLayer, RefusesStrides) {
  refuses([](LayerArgs& a) { a.k.token_stride = -1; },
          "k strides are -1 (token) and 64 (head); legal: 0 to 2^40 elements");
  refuses([](LayerArgs& a) { a.q.head_stride = int64_t{1} << 41; },
          "q strides are 256 (token) and 2199023255552 (head); legal: 0 to 2^40 elements");
  refuses(
      [](LayerArgs& a) { a.k.token_stride = int64_t{1} << 40, a.k.tokens = int64_t{1} << 32; },
      "k is 4294967296 tokens of stride 1099511627776 and 2 heads of stride 64; legal: up to 2^46 elements "
      "in all");
  refuses(
      [](LayerArgs& a) { a.v.head_stride = int64_t{1} << 40, a.v.heads = 65536; },
      "v is 20 tokens of stride 128 and 65536 heads of stride 1099511627776; legal: up to 2^46 elements in "
      "all");
  refuses([](LayerArgs& a) { a.out.head_stride = 32; },
          "out strides 256 (token) and 32 (head) make its rows overlap; head_dim is 64");
  refuses([](LayerArgs& a) { a.out.token_stride = 192; },
          "out strides 192 (token) and 64 (head) make its rows overlap; head_dim is 64");
  refuses([](LayerArgs& a) { a.out.token_stride = a.out.head_stride = 0; },
          "out strides 0 (token) and 0 (head) make its rows overlap; head_dim is 64");
}

TEST_F(CheckLayer, RefusesOverlap) {
  const std::string text = "out overlaps q, k or v in memory; give it a buffer of its own";
  const auto at = [](const Tensor& t, int64_t token, int64_t head) {
    return const_cast<std::byte*>(t.at(token, head));
  };
  refuses([&](LayerArgs& a) { a.out.data = at(a.q, 0, 0); }, text);
  refuses([&](LayerArgs& a) { a.out.data = at(a.k, 19, 1); }, text);  // its last row is the first of out
  refuses([&](LayerArgs& a) { a.out.data = at(a.v, 0, 0) - (10 * 4 * 64 - 1) * 4; }, text);
  const std::string lse = "lse_log2 overlaps another tensor in memory; give it a buffer of its own";
  refuses([&](LayerArgs& a) { a.lse_log2 = reinterpret_cast<float*>(a.out.at(9, 3)); }, lse);
  refuses([&](LayerArgs& a) { a.lse_log2 = reinterpret_cast<float*>(at(a.k, 3, 0)); }, lse);
}

TEST_F(CheckLayer, RefusesSequences) {
  std::vector<Sequence> s;
  const auto with = [&](std::vector<Sequence> sequences) {
    s = std::move(sequences);
    return [&](LayerArgs& a) { a.sequences = s; };
  };
  refuses(with({{0, -1, 0, 20, 0}}), "sequences[0] is q 0+-1, k 0+20, q_offset 0; none may be negative");
  refuses(with({{0, 5, 0, 10, 0}, {5, 5, -3, 10, 0}}),
          "sequences[1] is q 5+5, k -3+10, q_offset 0; none may be negative");
  refuses(with({{0, 10, 0, 20, -4}}), "sequences[0] is q 0+10, k 0+20, q_offset -4; none may be negative");
  refuses(with({{4, 7, 0, 20, 0}}), "sequences[0] ends at query 11; q has 10");
  refuses(with({{0, 10, 1, 20, 0}}), "sequences[0] ends at key 21; k has 20");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  refuses(with({{kMost, kMost, 0, 20, 0}}), "sequences[0] ends at query 18446744073709551614; q has 10");
  refuses(with({{0, 10, kMost, 20, 0}}), "sequences[0] ends at key 9223372036854775827; k has 20");
  refuses(with({{0, 5, 0, 10, 0}, {4, 5, 10, 10, 0}}),
          "sequences[1] begins at query 4, inside or before the one before it (ends at 5); order them");
  refuses(with({{0, 10, 0, 20, int64_t{1} << 33}}),
          "sequences[0].q_offset is 8589934592; legal: 0 to 4294967296");
}

TEST(SequencesOf, TheDefaultPutsQueriesAtTheEndOfTheKeys) {
  Problem p({.q_tokens = 3, .k_tokens = 8});
  LayerArgs args = p.layer_args();
  args.sequences = {};
  Sequence storage;
  const auto sequences = sequences_of(args, storage);
  ASSERT_EQ(sequences.size(), 1u);
  EXPECT_EQ(sequences[0].q_len, 3);
  EXPECT_EQ(sequences[0].k_len, 8);
  EXPECT_EQ(sequences[0].q_offset, 5);
}

// LG-1, its small form: offsets pass 2^31 and 2^32 without any memory behind them.
TEST(Tensor, OffsetsAre64Bit) {
  const auto* base = reinterpret_cast<const std::byte*>(uintptr_t{4096});
  const Tensor t{base, DType::kBF16, 1048576, 32, 128, 32 * 128, 128};
  EXPECT_EQ(t.at(1048575, 31) - base, (int64_t{1048575} * 4096 + 31 * 128) * 2);
  const Tensor blocks{base, DType::kQ8_0, 1048576, 32, 128, 32 * 128, 128};
  EXPECT_EQ(blocks.at(1048575, 31) - base, (int64_t{1048575} * 4096 + 31 * 128) / 32 * 34);
  const Tensor head_major{base, DType::kF32, 1048576, 32, 128, 128, 1048576 * 128};
  EXPECT_EQ(head_major.at(1048575, 31) - base, (int64_t{31} * 134217728 + 1048575 * 128) * 4);
}

}  // namespace
}  // namespace routerelay
