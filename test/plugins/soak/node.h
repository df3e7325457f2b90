// SPDX-License-Identifier: Apache-2.0
// A case in ggml's memory: one attention node over its q, k, v and mask, the same node over keys and values widened to
// f32, and a second one of the first for another back end.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "case.h"
#include "masks.h"
#include "need.h"

namespace routerelay::soak {

inline ggml_type type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return GGML_TYPE_F16;
    case DType::kBF16:
      return GGML_TYPE_BF16;
    case DType::kQ8_0:
      return GGML_TYPE_Q8_0;
    case DType::kF32:
      break;
  }
  return GGML_TYPE_F32;
}

// [dim, tokens, heads, streams] seen in `base`, which has room for more tokens or heads.
struct View {
  ggml_tensor *base = nullptr, *view = nullptr;
  Layout layout = Layout::kCache;
  int64_t streams, tokens, heads, dim;
  int64_t room_tokens, room_heads, first_token = 0, first_head = 0;  // of the base

  int64_t elements() const { return streams * room_tokens * room_heads * dim; }
  int64_t index(int64_t stream, int64_t token, int64_t head) const {
    if (layout == Layout::kContiguous) return ((stream * heads + head) * tokens + token) * dim;
    return ((stream * room_tokens + first_token + token) * room_heads + first_head + head) * dim;
  }
};

inline View make_view(ggml_context* context, ggml_type type, View v) {
  if (v.layout == Layout::kContiguous) {
    v.room_tokens = v.tokens, v.room_heads = v.heads;
    v.base = v.view = ggml_new_tensor_4d(context, type, v.dim, v.tokens, v.heads, v.streams);
    return v;
  }
  v.first_head = v.layout == Layout::kGaps ? 1 : 0;
  v.room_heads = v.heads + 2 * v.first_head;
  v.base = ggml_new_tensor_3d(context, type, v.dim * v.room_heads, v.room_tokens, v.streams);
  const size_t head = ggml_row_size(type, v.dim), token = head * v.room_heads;
  v.view = ggml_view_4d(context, v.base, v.dim, v.heads, v.tokens, v.streams, head, token,
                        token * v.room_tokens, token * v.first_token + head * v.first_head);
  v.view = ggml_permute(context, v.view, 0, 2, 1, 3);
  return v;
}

// Normal numbers out of a table: millions are wanted for every case.
class Normals {
 public:
  explicit Normals(Philox random) : random_(random) {}
  float next() {
    static const std::vector<float> table = [] {
      Philox random(1, 1);
      std::vector<float> out(1 << 16);
      for (float& x : out) x = static_cast<float>(random.normal());
      return out;
    }();
    return table[random_.next() >> 16];
  }

 private:
  Philox random_;
};

class Nodes {
 public:
  Nodes(const Case& c, const Masks& masks, ggml_backend_t cpu) : c_(c), masks_(masks) {
    context_.reset(ggml_init(
        {ggml_tensor_overhead() * 64 + 4 * ggml_graph_overhead_custom(kGraphNodes, false), nullptr, true}));
    q_ = make_view(context_.get(), GGML_TYPE_F32,
                   {.layout = c.q_layout,
                    .streams = c.streams,
                    .tokens = c.rows,
                    .heads = c.q_heads,
                    .dim = c.dim,
                    .room_tokens = c.rows});
    Philox random = c.random(2);
    const auto spare = static_cast<int64_t>(random.below(100)), before = spare / 2;
    const auto cache = [&](ggml_type type, Layout layout) {
      return make_view(context_.get(), type,
                       {.layout = layout,
                        .streams = c.streams,
                        .tokens = c.keys,
                        .heads = c.kv_heads,
                        .dim = c.dim,
                        .room_tokens = c.keys + spare,
                        .first_token = layout == Layout::kContiguous ? 0 : before});
    };
    k_ = cache(type_of(c.kv), c.k_layout), v_ = cache(type_of(c.kv), c.v_layout);
    wide_k_ = cache(GGML_TYPE_F32, c.k_layout), wide_v_ = cache(GGML_TYPE_F32, c.v_layout);
    mask_ =
        ggml_new_tensor_4d(context_.get(), GGML_TYPE_F16, c.keys, c.mask_rows, c.mask_heads, c.mask_streams);
    ggml_set_name(k_.base, ("cache_k_l" + std::to_string(random.below(3))).c_str());
    same = make_graph(k_, v_), wide = make_graph(wide_k_, wide_v_), ours = make_graph(k_, v_);
    buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), cpu));
    need(buffer_ != nullptr, "no memory for a case");
    std::memcpy(mask_->data, masks.values.data(), masks.values.size() * sizeof(uint16_t));
    fill_queries();
    fill_cache(k_, wide_k_, 4);
    fill_cache(v_, wide_v_, 5);
    for (const Graph& graph : {same, wide, ours})
      for (ggml_tensor* t : {graph.before, graph.out, graph.after}) poison(t);
  }

  // Of the keys' streams, and of the values': the same, in tokens.
  bool streams_agree() const { return k_.view->nb[3] / k_.view->nb[1] == v_.view->nb[3] / v_.view->nb[1]; }

  // A node, and what lies before and after its result.
  struct Graph {
    ggml_cgraph* graph = nullptr;
    ggml_tensor *before = nullptr, *out = nullptr, *after = nullptr;

    const float* data() const { return static_cast<const float*>(out->data); }
    bool guards_intact() const {
      for (const ggml_tensor* t : {before, after})
        for (int64_t i = 0; i < ggml_nelements(t); ++i)
          if (!std::isnan(static_cast<const float*>(t->data)[i])) return false;
      return true;
    }
  };
  Graph same, wide, ours;

 private:
  static constexpr size_t kGraphNodes = 16;
  static constexpr int64_t kGuard = 64;  // elements

  struct FreeContext {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  struct FreeBuffer {
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
  };

  Graph make_graph(const View& k, const View& v) {
    Graph g;
    g.before = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, kGuard);
    g.out = ggml_flash_attn_ext(context_.get(), q_.view, k.view, v.view, mask_,
                                1 / std::sqrt(static_cast<float>(c_.dim)), 0, 0);
    ggml_flash_attn_ext_set_prec(g.out, GGML_PREC_F32);
    g.after = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, kGuard);
    g.graph = ggml_new_graph_custom(context_.get(), kGraphNodes, false);
    ggml_build_forward_expand(g.graph, g.out);
    return g;
  }

  static void poison(ggml_tensor* t) {
    std::fill_n(static_cast<float*>(t->data), ggml_nelements(t), std::numeric_limits<float>::quiet_NaN());
  }

  // Over bf16 keys in bf16, which some kernels and the host round to: what is left to compare is arithmetic.
  void fill_queries() {
    auto* data = static_cast<float*>(q_.base->data);
    Normals normals(c_.random(6));
    for (int64_t i = 0; i < q_.elements(); ++i) {
      data[i] = static_cast<float>(c_.sharpness) * normals.next();
      if (c_.kv == DType::kBF16) data[i] = ggml_bf16_to_fp32(ggml_fp32_to_bf16(data[i]));
    }
  }

  // What is in no view must not be read: NaN, or what q8_0 can hold of it.
  void fill_cache(const View& view, const View& wide_view, uint64_t use) {
    const float outside = c_.kv == DType::kQ8_0 ? 1e6f : std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values(static_cast<size_t>(view.elements()), outside);
    Normals normals(c_.random(use));
    for (int64_t s = 0; s < view.streams; ++s)
      for (int64_t t = 0; t < view.tokens; ++t) {
        const float size = c_.stale && !masks_.is_seen(s, t) ? 50.0f : 1.0f;
        for (int64_t h = 0; h < view.heads; ++h) {
          float* to = values.data() + view.index(s, t, h);
          for (int64_t i = 0; i < view.dim; ++i) to[i] = size * normals.next();
        }
      }
    const ggml_type type = view.base->type;
    const int64_t dims = static_cast<int64_t>(values.size()) / view.dim;
    ggml_quantize_chunk(type, values.data(), view.base->data, 0, dims, view.dim, nullptr);
    auto* widened = static_cast<float*>(wide_view.base->data);
    if (type == GGML_TYPE_F32)
      std::memcpy(widened, values.data(), values.size() * sizeof(float));
    else
      ggml_get_type_traits(type)->to_float(view.base->data, widened, static_cast<int64_t>(values.size()));
  }

  const Case& c_;
  const Masks& masks_;
  std::unique_ptr<ggml_context, FreeContext> context_;
  std::unique_ptr<ggml_backend_buffer, FreeBuffer> buffer_;
  View q_, k_, v_, wide_k_, wide_v_;
  ggml_tensor* mask_ = nullptr;
};

}  // namespace routerelay::soak
