// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "mask.h"
#include "supports.h"

namespace routerelay::ggml {
namespace {

// Whole blocks, where the dtype has them.
int64_t elements(size_t bytes, DType dtype) {
  const int64_t block = block_elements(dtype);
  return static_cast<int64_t>(bytes) / bytes_of(dtype, block) * block;
}

// [d, tokens, heads, streams] as [tokens, heads, d]; streams lie one after another.
Tensor view_of(const HostTensor& t, DType dtype) {
  return {.data = static_cast<const std::byte*>(t.data),
          .dtype = dtype,
          .tokens = (t.ne[3] - 1) * tokens_between_streams(t) + t.ne[1],
          .heads = t.ne[2],
          .head_dim = t.ne[0],
          .token_stride = elements(t.nb[1], dtype),
          .head_stride = elements(t.nb[2], dtype)};
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

Request request_of(const HostTensor& node, Exec& exec) {
  const HostTensor &q = *node.src[0], &k = *node.src[1], &v = *node.src[2], &mask = *node.src[3];
  const DType kv_dtype = kv_dtype_of(k.type).value();
  Request request;
  request.q = view_of(q, DType::kF32);
  request.k = view_of(k, kv_dtype);
  request.v = view_of(v, kv_dtype);
  request.rows = q.ne[1];
  // dst is [d, heads, tokens, streams] and contiguous, whatever strides the queries have.
  request.out = contiguous(node.data, DType::kF32, q.ne[1] * q.ne[3], q.ne[2], q.ne[0]);
  request.scale = std::bit_cast<float>(node.op_params[0]);
  request.layer = layer_of(k);

  std::vector<Sequence> chunks;  // where every stream is one
  for (int64_t s = 0; s < q.ne[3]; ++s) {
    const int64_t plane = mask.ne[3] == 1 ? 0 : s * static_cast<int64_t>(mask.nb[3]);
    const auto* data = reinterpret_cast<const uint16_t*>(static_cast<const std::byte*>(mask.data) + plane);
    // Where a mask counts it counts alone: every key of the cache lies before every query.
    const Sequence all{s * q.ne[1], q.ne[1], s * tokens_between_streams(k), k.ne[1], k.ne[1]};
    request.sequences.push_back(all);
    request.masks.push_back({data, mask.ne[0]});
    if (std::ssize(chunks) < s) continue;  // another stream is none
    if (const auto chunk = causal_chunk({data, q.ne[1], mask.ne[0], mask.ne[0]}, exec))
      chunks.push_back({all.q_begin, all.q_len, all.k_begin + chunk->begin, chunk->last_visible,
                        chunk->first_visible - 1});
  }
  if (chunks.size() == request.sequences.size()) {
    request.sequences = std::move(chunks);
    request.masks.clear();
  }
  return request;
}

}  // namespace routerelay::ggml
