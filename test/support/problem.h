// SPDX-License-Identifier: Apache-2.0
// One call's worth of random inputs and NaN-filled outputs, and the arguments of every stage over them.
#pragma once

#include <vector>

#include "core/stages.h"
#include "support/tensor.h"

namespace routerelay::support {

struct ProblemArgs {
  int64_t q_tokens = 64;
  int64_t k_tokens = 64;
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
  DType q_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  Layout layout = Layout::kTokenMajor;
  std::vector<Sequence> sequences = {};  // empty: one, its queries at the end of its keys
  int q_block = 64;
  int k_block = 64;
  uint64_t seed = 1;
};

// All four tensors of one dtype; queries and results in f32 where that is one for keys and values only.
inline ProblemArgs with_dtype(ProblemArgs args, DType dtype) {
  args.kv_dtype = dtype;
  args.q_dtype = args.out_dtype = dtype == DType::kQ8_0 ? DType::kF32 : dtype;
  return args;
}

struct Problem {
  explicit Problem(const ProblemArgs& a)
      : q(a.q_dtype, a.q_tokens, a.q_heads, a.head_dim, a.layout),
        k(a.kv_dtype, a.k_tokens, a.kv_heads, a.head_dim, a.layout),
        v(a.kv_dtype, a.k_tokens, a.kv_heads, a.head_dim, a.layout),
        out(a.out_dtype, a.q_tokens, a.q_heads, a.head_dim, a.layout),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(a.head_dim)))),
        sequences(a.sequences) {
    if (sequences.empty()) sequences = {{0, a.q_tokens, 0, a.k_tokens, a.k_tokens - a.q_tokens}};
    rows = make_rows(sequences, a.q_block, a.k_block);
    q.fill_normal(a.seed, 0);
    k.fill_normal(a.seed, 1);
    v.fill_normal(a.seed, 2);
    poison();
  }
  // What a call must write, it must write everywhere: NaN left behind is a failure.
  void poison() {
    out.fill_nan();
    lse_log2.assign(static_cast<size_t>(q.view.heads * q.view.tokens),
                    std::numeric_limits<float>::quiet_NaN());
  }
  AttendArgs attend_args(const Routes& routes) {
    return {q.view, k.view, v.view, rows, routes, scale, out.mutable_view, lse_log2.data()};
  }
  // Gives every sequence a mask: `hidden(sequence, query, key)`, both counted from the sequence's first.
  template <class Hidden>
  void hide(const Hidden& hidden) {
    for (size_t s = 0; s < sequences.size(); ++s) {
      const auto queries = sequences[s].q_len, stride = sequences[s].k_len + 5;
      auto& values =
          mask_values.emplace_back(static_cast<size_t>(queries * stride), uint16_t{0x7e00});  // NaN
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < sequences[s].k_len; ++j)
          values[static_cast<size_t>(i * stride + j)] = hidden(s, i, j) ? 0xfc00 : j % 2 == 0 ? 0 : 0x8000;
    }
    for (size_t s = 0; s < sequences.size(); ++s)
      masks.push_back({mask_values[s].data(), sequences[s].k_len + 5});
  }
  bool shown(size_t sequence, int64_t i, int64_t j) const {
    return masks.empty() || (masks[sequence].data[i * masks[sequence].row_stride + j] & 0x7fff) == 0;
  }
  LayerArgs layer_args(int layer = -1) {
    LayerArgs a;
    a.q = q.view;
    a.k = k.view;
    a.v = v.view;
    a.out = out.mutable_view;
    a.lse_log2 = lse_log2.data();
    a.sequences = sequences;
    a.masks = masks;
    a.scale = scale;
    a.layer = layer;
    return a;
  }
  int64_t n_lists() const { return q.view.heads * rows.size(); }

  OwnedTensor q, k, v, out;
  std::vector<float> lse_log2;  // [q_heads, q_tokens] f32
  float scale;
  std::vector<Sequence> sequences;
  Rows rows;
  std::vector<std::vector<uint16_t>> mask_values;  // per sequence [q_len, k_len + 5] f16, NaN behind each row
  std::vector<Mask> masks;
};

}  // namespace routerelay::support
