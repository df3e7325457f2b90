// SPDX-License-Identifier: Apache-2.0
// Claims: what of a node is looked at, and the reason that each difference gives.
#include "supports.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>
#include <string>

#include "attention_node.h"
#include "core/stages.h"
#include "request.h"
#include "support/exec.h"

namespace routerelay::ggml {
namespace {

Request request(const AttentionNode& a) {
  support::TestExec on;
  return request_of(a.node, on.exec);
}

TEST(Supports, TakesPromptAttentionOfEveryHeadSize) {
  for (const int64_t dim : {64, 80, 96, 128, 256})
    EXPECT_EQ(why_declined(AttentionNode({.dim = dim}).node, {}), Reason::kNone) << dim;
  EXPECT_EQ(why_declined(AttentionNode({.q_heads = 9, .kv_heads = 3, .streams = 2}).node, {}), Reason::kNone);
}

TEST(Supports, TakesEveryCacheTypeOfTheEngine) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8_0})
    for (const int64_t dim : {64, 96, 128, 256})
      EXPECT_EQ(why_declined(AttentionNode({.dim = dim, .streams = 2, .kv_dtype = dtype}).node, {}),
                Reason::kNone)
          << dtype_name(dtype) << " " << dim;
  EXPECT_EQ(why_declined(AttentionNode({.dim = 80, .kv_dtype = DType::kBF16}).node, {}), Reason::kNone);
  EXPECT_EQ(why_declined(AttentionNode({.dim = 80, .kv_dtype = DType::kQ8_0}).node, {}), Reason::kHeadDim);
}

TEST(Supports, DeclinesQ8ViewsThatBeginInsideABlock) {
  for (const int i : {0, 1, 2}) {
    AttentionNode a({.kv_dtype = DType::kQ8_0});
    a.k.nb[i] += 2;
    EXPECT_EQ(why_declined(a.node, {}), Reason::kStrides) << i;
  }
}

TEST(Supports, DeclinesStreamsThatLieInNoOrder) {
  AttentionNode heads_first(
      {.streams = 2});  // queries [streams, heads, tokens, dim]: no token comes after the last one
  heads_first.q.nb[3] *= 4;
  EXPECT_EQ(why_declined(heads_first.node, {}), Reason::kStrides);
  AttentionNode apart({.streams = 2});
  apart.v.nb[3] += apart.v.nb[1];
  EXPECT_EQ(why_declined(apart.node, {}), Reason::kStrides);
  AttentionNode broadcast({.streams = 2});
  broadcast.k.nb[1] = broadcast.v.nb[1] = 0;
  EXPECT_EQ(why_declined(broadcast.node, {}), Reason::kStrides);
}

TEST(Supports, DeclinesByShape) {
  EXPECT_EQ(why_declined(AttentionNode({.rows = 1}).node, {}), Reason::kFewRows);
  EXPECT_EQ(why_declined(AttentionNode({.rows = 63}).node, {}), Reason::kFewRows);
  EXPECT_EQ(why_declined(AttentionNode({.rows = 8}).node, {.min_rows = 8}), Reason::kNone);
  EXPECT_EQ(why_declined(AttentionNode({}).node, {.min_keys = 257}), Reason::kFewKeys);
  EXPECT_EQ(why_declined(AttentionNode({.dim = 72}).node, {}), Reason::kHeadDim);
  EXPECT_EQ(why_declined(AttentionNode({.q_heads = 4, .kv_heads = 3}).node, {}), Reason::kHeads);
}

TEST(Supports, DeclinesWhatItDoesNotKnow) {
  const auto declined = [](const std::function<void(AttentionNode&)>& change) {
    AttentionNode a({});
    change(a);
    return why_declined(a.node, {});
  };
  const auto bits = [](float f) { return std::bit_cast<int32_t>(f); };
  HostTensor sinks{};
  EXPECT_EQ(declined([](AttentionNode& a) { a.k.type = kTypeQ8_0; }), Reason::kTypes);
  EXPECT_EQ(declined([](AttentionNode& a) { a.v.type = kTypeBF16; }), Reason::kTypes);
  EXPECT_EQ(declined([](AttentionNode& a) { a.k.type = a.v.type = 2; }), Reason::kTypes);  // q4_0
  EXPECT_EQ(declined([](AttentionNode& a) { a.k.type = a.v.type = kTypeF32; }), Reason::kTypes);
  EXPECT_EQ(declined([](AttentionNode& a) { a.q.type = kTypeF16; }), Reason::kTypes);
  EXPECT_EQ(declined([](AttentionNode& a) { a.v.ne[0] = 128; }), Reason::kHeadDim);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.op_params[1] = bits(8); }), Reason::kAlibi);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.op_params[2] = bits(50); }), Reason::kSoftcap);
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(declined([&](AttentionNode& a) { a.node.op_params[0] = bits(scale); }), Reason::kParams)
        << scale;
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.op_params[3] = 20; }), Reason::kParams);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.op_params[3] = 10; }), Reason::kNone);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.op_params[4] = 512; }), Reason::kParams);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.op_params[15] = 1; }), Reason::kParams);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.src[4] = &sinks; }), Reason::kSinks);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.src[3] = nullptr; }), Reason::kNoMask);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.mask.type = kTypeF32; }), Reason::kNoMask);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.mask.nb[1] += 2; }), Reason::kNoMask);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.mask.ne[0] = 128; }), Reason::kNoMask);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.k.nb[0] = 4; }), Reason::kStrides);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.v.ne[1] = 128; }), Reason::kStrides);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.nb[2] += 4; }), Reason::kStrides);
  EXPECT_EQ(declined([&](AttentionNode& a) { a.node.src[1] = nullptr; }), Reason::kParams);
}

TEST(Request, ReadsViewsSequencesAndLayer) {
  AttentionNode a({.rows = 64, .keys = 256, .streams = 2, .cells = 320, .position = 100, .layer = 17});
  const Request r = request(a);
  EXPECT_EQ(r.layer, 17);
  EXPECT_EQ(r.rows, 64);
  EXPECT_FLOAT_EQ(r.scale, 0.125f);
  EXPECT_EQ(r.q.tokens, 128);
  EXPECT_EQ(r.k.tokens, 320 + 256);
  EXPECT_EQ(r.k.token_stride, 2 * 64);
  EXPECT_EQ(r.k.head_stride, 64);
  ASSERT_EQ(r.sequences.size(), 2u);
  EXPECT_EQ(r.sequences[1].q_begin, 64);
  EXPECT_EQ(r.sequences[1].k_begin, 320);
  EXPECT_EQ(r.sequences[1].k_len, 164);
  EXPECT_EQ(r.sequences[1].q_offset, 100);
  EXPECT_TRUE(check_layer(r.args()).ok());
}

TEST(Request, CountsQ8StridesInElements) {
  AttentionNode a({.streams = 2, .cells = 320, .position = 100, .kv_dtype = DType::kQ8_0});
  const Request r = request(a);
  EXPECT_EQ(r.k.dtype, DType::kQ8_0);
  EXPECT_EQ(r.v.dtype, DType::kQ8_0);
  EXPECT_EQ(r.k.token_stride, 2 * 64);
  EXPECT_EQ(r.k.head_stride, 64);
  EXPECT_EQ(r.k.tokens, 320 + 256);
  EXPECT_EQ(r.k.at(r.sequences[1].k_begin, 1) - r.k.data, static_cast<int64_t>(a.k.nb[3] + a.k.nb[2]));
  EXPECT_TRUE(check_layer(r.args()).ok());
}

TEST(Request, OneStreamThatIsNotCausalMasksTheCall) {
  AttentionNode a({.streams = 2, .position = 100});
  a.mask_at(3, 0, 1) = kHalfMinusInf;
  const Request r = request(a);
  ASSERT_EQ(r.masks.size(), 2u);
  EXPECT_EQ(r.masks[1].data, &a.mask_at(0, 0, 1));
  EXPECT_EQ(r.masks[1].row_stride, 256);
  for (const Sequence& s : r.sequences) {
    EXPECT_EQ(s.k_len, 256);
    EXPECT_EQ(s.q_offset, 256);
  }
  EXPECT_TRUE(check_layer(r.args()).ok());
}

TEST(Request, LayerIndexOnlyFromACacheName) {
  const auto layer = [](const char* name) {
    HostTensor cache{}, keys{};
    std::snprintf(cache.name, sizeof cache.name, "%s", name);
    keys.view_src = &cache;
    return layer_of(keys);
  };
  EXPECT_EQ(layer("cache_k_l0"), 0);
  EXPECT_EQ(layer("cache_k_l31"), 31);
  EXPECT_EQ(layer("cache_k_l"), -1);
  EXPECT_EQ(layer("cache_k_l-2"), -1);
  EXPECT_EQ(layer("cache_k_lx"), -1);
  EXPECT_EQ(layer("k-3"), -1);
  EXPECT_EQ(layer_of(HostTensor{}), -1);
}

TEST(Request, AChunkThatFollowsAnotherPromptIsOne) {
  AttentionNode a({.rows = 64, .keys = 256, .position = 150});
  for (int64_t row = 0; row < 64; ++row)
    for (int64_t key = 0; key < 100; ++key) a.mask_at(row, key) = kHalfMinusInf;
  const Request r = request(a);
  EXPECT_TRUE(r.masks.empty());
  ASSERT_EQ(r.sequences.size(), 1u);
  EXPECT_EQ(r.sequences[0].k_begin, 100);
  EXPECT_EQ(r.sequences[0].k_len, 114);
  EXPECT_EQ(r.sequences[0].q_offset, 50);
  EXPECT_TRUE(check_layer(r.args()).ok());
}

}  // namespace
}  // namespace routerelay::ggml
