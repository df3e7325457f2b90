// SPDX-License-Identifier: Apache-2.0
// Synthetic q, k, v with the structure that routing lives on: keys in topics, queries that want a few of them, and
// wants that drift from layer to layer. Random vectors have none of it: every block would be as good as any other.
#pragma once

#include <cstdint>
#include <vector>

#include "routerelay/tensor.hpp"

namespace routerelay {

struct StructuredArgs {
  int64_t tokens = 32768;
  int q_heads = 4;
  int kv_heads = 2;
  int64_t head_dim = 128;
  DType dtype = DType::kBF16;
  uint64_t seed = 1;
};

// One layer of a prompt whose queries are all of its tokens.
//  - The text is cut into segments of 32 to 256 tokens; each has one of 32 topics, the same in every layer.
//  - A key is its topic's direction (of this layer and KV head) plus noise; the first keys are a sink.
//  - A run of 64 queries of one head wants two topics. From one layer to the next each want is replaced with a
//    chance of 0.45, so that adjacent layers share a little over half of their best blocks, as those of real
//    models do. The query is the sum of these directions, as long as makes the wanted segments hold most of the
//    attention, plus noise of its own.
class StructuredLayer {
 public:
  StructuredLayer(const StructuredArgs& args, int layer);
  const Tensor& q() const { return q_; }
  const Tensor& k() const { return k_; }
  const Tensor& v() const { return v_; }

 private:
  void fill_keys(const StructuredArgs& args, int layer);
  void fill_queries(const StructuredArgs& args, int layer);
  // [kv_heads, topics + sink, head_dim] unit vectors of this layer.
  std::vector<float> directions_;
  std::vector<std::byte> q_bytes_, k_bytes_, v_bytes_;
  Tensor q_, k_, v_;
};

}  // namespace routerelay
