// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include "mask.h"
#include "supports.h"

namespace routerelay::ggml {
namespace {

// Whole blocks, where the dtype has them.
int64_t elements(size_t bytes, DType dtype) {
  const int64_t block = block_elements(dtype);
  return static_cast<int64_t>(bytes) / bytes_of(dtype, block) * block;
}

// [d, tokens, heads, streams] as [tokens, heads, d]; streams lie one after another, `gap` tokens apart.
struct StreamedView {
  Tensor tensor;
  int64_t gap = 0;
};
StreamedView view_of(const HostTensor& t, DType dtype) {
  const int64_t gap = t.ne[3] > 1 ? static_cast<int64_t>(t.nb[3] / t.nb[1]) : t.ne[1];
  return {{.data = static_cast<const std::byte*>(t.data),
           .dtype = dtype,
           .tokens = (t.ne[3] - 1) * gap + t.ne[1],
           .heads = t.ne[2],
           .head_dim = t.ne[0],
           .token_stride = elements(t.nb[1], dtype),
           .head_stride = elements(t.nb[2], dtype)},
          gap};
}

}  // namespace

int layer_of(const HostTensor& keys) {
  constexpr std::string_view kPrefix = "cache_k_l";
  if (keys.view_src == nullptr) return -1;
  const std::string_view name(keys.view_src->name, strnlen(keys.view_src->name, sizeof keys.view_src->name));
  if (!name.starts_with(kPrefix)) return -1;
  int layer = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  // The cache of a model with two kinds of layers may append to the name; such layers still count in order.
  const bool whole_number = error == std::errc{} && (stop == end || *stop == ' ' || *stop == '_');
  return whole_number && layer >= 0 ? layer : -1;
}

Reason make_request(const HostTensor& node, Request& request) {
  const HostTensor &q = *node.src[0], &k = *node.src[1], &v = *node.src[2], &mask = *node.src[3];
  const DType kv_dtype = kv_dtype_of(k.type).value();
  const StreamedView queries = view_of(q, DType::kF32), keys = view_of(k, kv_dtype),
                     values = view_of(v, kv_dtype);
  request.q = queries.tensor;
  request.k = keys.tensor;
  request.v = values.tensor;
  request.rows = q.ne[1];
  // dst is [d, heads, tokens, streams] and contiguous, whatever strides the queries have.
  request.out = contiguous(node.data, DType::kF32, q.ne[1] * q.ne[3], q.ne[2], q.ne[0]);
  if (queries.gap != q.ne[1]) return Reason::kStrides;  // out has no gaps, and a Sequence has one q_begin
  request.scale = std::bit_cast<float>(node.op_params[0]);
  if (!(request.scale > 0) || !std::isfinite(request.scale)) return Reason::kParams;
  request.layer = layer_of(k);

  request.sequences.clear();
  request.masks.clear();
  bool causal = true;
  for (int64_t s = 0; s < q.ne[3]; ++s) {
    const int64_t plane = mask.ne[3] == 1 ? 0 : s * static_cast<int64_t>(mask.nb[3]);
    const auto* data = reinterpret_cast<const uint16_t*>(static_cast<const std::byte*>(mask.data) + plane);
    // Where a mask counts it counts alone: every key of the cache lies before every query.
    Sequence sequence{s * queries.gap, q.ne[1], s * keys.gap, k.ne[1], k.ne[1]};
    const auto chunk = causal ? causal_chunk({data, q.ne[1], mask.ne[0], mask.ne[0]}) : std::nullopt;
    causal = chunk.has_value();
    if (causal) {
      sequence.k_len = chunk->last_visible;
      sequence.q_offset = chunk->first_visible - 1;
    }
    request.sequences.push_back(sequence);
    request.masks.push_back({data, mask.ne[0]});
  }
  if (causal) {
    request.masks.clear();
  } else {
    for (Sequence& sequence : request.sequences) sequence.k_len = sequence.q_offset = k.ne[1];
  }
  return Reason::kNone;
}

}  // namespace routerelay::ggml
