// SPDX-License-Identifier: Apache-2.0
// One attention node as llama.cpp builds it: permuted views of a KV cache with room to spare, and its mask.
#pragma once

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "core/convert.h"
#include "core/rng.h"
#include "fake_ggml.h"
#include "mask.h"

namespace routerelay::ggml {

struct NodeShape {
  int64_t rows = 64, keys = 256, q_heads = 4, kv_heads = 2, dim = 64, streams = 1;
  int64_t cells = 320;   // of the cache, per stream
  int64_t position = 0;  // of the first row
  int layer = 3;
  DType kv_dtype = DType::kF16;
};

class AttentionNode {
 public:
  explicit AttentionNode(const NodeShape& shape) : s_(shape) {
    Philox random(7, static_cast<uint64_t>(shape.position));
    fill(q_data_, s_.dim * s_.q_heads * s_.rows * s_.streams,
         [&] { return static_cast<float>(random.normal()); });
    for (auto* bytes : {&k_data_, &v_data_})
      fill_cache(*bytes, s_.dim * s_.kv_heads * s_.cells * s_.streams, random);
    out_data_.assign(q_data_.size(), std::numeric_limits<float>::quiet_NaN());
    set(q, kTypeF32, {s_.dim, s_.rows, s_.q_heads, s_.streams}, 4, s_.q_heads, s_.rows, q_data_.data());
    const bool blocks = s_.kv_dtype == DType::kQ8_0;
    const int32_t type = blocks ? kTypeQ8_0 : s_.kv_dtype == DType::kBF16 ? kTypeBF16 : kTypeF16;
    set(k, type, {s_.dim, s_.keys, s_.kv_heads, s_.streams}, 2, s_.kv_heads, s_.cells, k_data_.data());
    set(v, type, {s_.dim, s_.keys, s_.kv_heads, s_.streams}, 2, s_.kv_heads, s_.cells, v_data_.data());
    std::snprintf(cache.name, sizeof cache.name, "cache_k_l%d", s_.layer);
    k.view_src = &cache;
    set_mask();
    set_out();
  }
  AttentionNode(const AttentionNode&) = delete;
  AttentionNode& operator=(const AttentionNode&) = delete;

  uint16_t& mask_at(int64_t row, int64_t key, int64_t stream = 0) {
    return mask_data_[static_cast<size_t>((stream * s_.rows + row) * s_.keys + key)];
  }
  const std::vector<float>& out() const { return out_data_; }
  void forget_out() { out_data_.assign(out_data_.size(), std::numeric_limits<float>::quiet_NaN()); }

  HostTensor q{}, k{}, v{}, mask{}, cache{}, node{};

 private:
  template <class T, class Fn>
  static void fill(std::vector<T>& data, int64_t n, const Fn& next) {
    data.resize(static_cast<size_t>(n));
    for (T& x : data) x = next();
  }
  // n a multiple of 32 where the cache is in blocks.
  void fill_cache(std::vector<std::byte>& data, int64_t n, Philox& random) const {
    data.resize(static_cast<size_t>(bytes_of(s_.kv_dtype, n)));
    std::vector<float> values;
    fill(values, n, [&] { return static_cast<float>(random.normal()); });
    for (int64_t i = 0; i < n; i += block_elements(s_.kv_dtype))
      s_.kv_dtype == DType::kQ8_0 ? store_q8_0(data.data() + bytes_of(s_.kv_dtype, i), values.data() + i)
                                  : store_f32(data.data(), s_.kv_dtype, i, values[static_cast<size_t>(i)]);
  }
  // [dim, tokens, heads, streams] over memory laid out [streams, room, heads, dim]; q8_0's blocks of 34 bytes.
  static void set(HostTensor& t, int32_t type, std::vector<int64_t> ne, size_t bytes, int64_t heads,
                  int64_t room, void* data) {
    t.type = type;
    for (size_t i = 0; i < 4; ++i) t.ne[i] = ne[i];
    const bool blocks = type == kTypeQ8_0;
    t.nb[0] = blocks ? kQ8Bytes : bytes;
    t.nb[2] =
        blocks ? static_cast<size_t>(bytes_of(DType::kQ8_0, ne[0])) : bytes * static_cast<size_t>(ne[0]);
    t.nb[1] = t.nb[2] * static_cast<size_t>(heads);
    t.nb[3] = t.nb[1] * static_cast<size_t>(room);
    t.op = 4;
    t.data = data;
  }
  static void set_contiguous(HostTensor& t, int32_t type, std::vector<int64_t> ne, size_t bytes, void* data) {
    t.type = type;
    t.data = data;
    for (size_t i = 0; i < 4; ++i) {
      t.ne[i] = ne[i];
      t.nb[i] = i == 0 ? bytes : t.nb[i - 1] * static_cast<size_t>(ne[i - 1]);
    }
  }
  void set_mask() {
    mask_data_.assign(static_cast<size_t>(s_.keys * s_.rows * s_.streams), kHalfMinusInf);
    for (int64_t stream = 0; stream < s_.streams; ++stream)
      for (int64_t row = 0; row < s_.rows; ++row)
        for (int64_t key = 0; key <= s_.position + row && key < s_.keys; ++key)
          mask_at(row, key, stream) = kHalfZero;
    set_contiguous(mask, kTypeF16, {s_.keys, s_.rows, 1, s_.streams}, 2, mask_data_.data());
  }
  void set_out() {
    set_contiguous(node, kTypeF32, {s_.dim, s_.q_heads, s_.rows, s_.streams}, 4, out_data_.data());
    node.op = kFakeFlashAttention;
    node.flags = kFlagCompute;
    node.op_params[0] = std::bit_cast<int32_t>(1.0f / std::sqrt(static_cast<float>(s_.dim)));
    node.src[0] = &q;
    node.src[1] = &k;
    node.src[2] = &v;
    node.src[3] = &mask;
  }

  NodeShape s_;
  std::vector<float> q_data_, out_data_;
  std::vector<std::byte> k_data_, v_data_;
  std::vector<uint16_t> mask_data_;
};

}  // namespace routerelay::ggml
