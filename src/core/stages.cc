// SPDX-License-Identifier: Apache-2.0
#include "core/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/assert.h"

namespace routerelay {
namespace {

constexpr std::array<int64_t, 5> kHeadDims = {64, 80, 96, 128, 256};
// Tokens and heads above this are a mistake, and offsets in bytes still fit 63 bits below it.
constexpr int64_t kMaxTokens = int64_t{1} << 32;
constexpr int64_t kMaxHeads = 1 << 16;

template <class... T>
Status bad(fmt::format_string<T...> text, T&&... args) {
  return {Code::kInvalidArgument, "layer: " + fmt::format(text, std::forward<T>(args)...)};
}

// Only keys and values are quantised anywhere: queries and results are made here and now.
Status check_dtype(const char* name, DType dtype, bool may_be_blocks) {
  if (dtype == DType::kE4M3)
    return bad("{}.dtype is e4m3; legal: f32, bf16, f16{}; only attend on CUDA takes e4m3", name,
               may_be_blocks ? ", q8_0" : "");
  if (dtype > DType::kQ8_0)
    return bad("{}.dtype is {}; legal: f32, bf16, f16{}", name, static_cast<int>(dtype),
               may_be_blocks ? ", q8_0" : "");
  if (dtype == DType::kQ8_0 && !may_be_blocks)
    return bad("{}.dtype is q8_0; legal: f32, bf16, f16; only k and v may be q8_0", name);
  return {};
}

template <class Byte>
Status check_blocks(const char* name, const BasicTensor<Byte>& t) {
  const int64_t block = block_elements(t.dtype);
  if (t.head_dim % block != 0)
    return bad("{}.head_dim is {}; legal for {}: multiples of {}; keep such keys and values in f16", name,
               t.head_dim, dtype_name(t.dtype), block);
  if (t.token_stride % block != 0 || t.head_stride % block != 0)
    return bad("{} strides are {} (token) and {} (head); legal for {}: multiples of {} elements", name,
               t.token_stride, t.head_stride, dtype_name(t.dtype), block);
  return {};
}

template <class Byte>
Status check_tensor(const char* name, const BasicTensor<Byte>& t, bool may_be_blocks = false) {
  RR_TRY(check_dtype(name, t.dtype, may_be_blocks));
  if (t.tokens < 0 || t.tokens > kMaxTokens)
    return bad("{}.tokens is {}; legal: 0 to {}", name, t.tokens, kMaxTokens);
  if (t.heads < 1 || t.heads > kMaxHeads)
    return bad("{}.heads is {}; legal: 1 to {}", name, t.heads, kMaxHeads);
  if (std::find(kHeadDims.begin(), kHeadDims.end(), t.head_dim) == kHeadDims.end())
    return bad("{}.head_dim is {}; legal: {}; pad the heads", name, t.head_dim, fmt::join(kHeadDims, ", "));
  if (t.tokens > 0 && t.data == nullptr) return bad("{}.data is null with {} tokens", name, t.tokens);
  const auto address = reinterpret_cast<uintptr_t>(t.data);
  if (address % static_cast<uintptr_t>(alignment_of(t.dtype)) != 0)
    return bad("{}.data is not aligned to its {} elements", name, dtype_name(t.dtype));
  constexpr int64_t kMaxStride = int64_t{1} << 40;
  if (t.head_stride < 0 || t.head_stride > kMaxStride || t.token_stride < 0 || t.token_stride > kMaxStride)
    return bad("{} strides are {} (token) and {} (head); legal: 0 to 2^40 elements", name, t.token_stride,
               t.head_stride);
  // More than any memory holds; below it no product of strides and sizes overflows.
  constexpr int64_t kMaxReach = int64_t{1} << 46;
  if ((t.tokens > 1 && t.token_stride > kMaxReach / (t.tokens - 1)) ||
      (t.heads > 1 && t.head_stride > kMaxReach / (t.heads - 1)))
    return bad("{} is {} tokens of stride {} and {} heads of stride {}; legal: up to 2^46 elements in all",
               name, t.tokens, t.token_stride, t.heads, t.head_stride);
  return check_blocks(name, t);
}

// First and last byte that a view touches.
struct Range {
  uintptr_t begin = 0, end = 0;
};
template <class Byte>
Range range_of(const BasicTensor<Byte>& t) {
  if (t.tokens == 0) return {};
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  const auto last = t.at(t.tokens - 1, t.heads - 1);
  return {begin, reinterpret_cast<uintptr_t>(last) + static_cast<uintptr_t>(bytes_of(t.dtype, t.head_dim))};
}
bool overlap(Range a, Range b) {
  return a.begin < b.end && b.begin < a.end;
}

Status check_out(const LayerArgs& a) {
  const MutableTensor& o = a.out;
  if (o.tokens != a.q.tokens || o.heads != a.q.heads || o.head_dim != a.q.head_dim)
    return bad("out is [{}, {}, {}]; must be q's [{}, {}, {}]", o.tokens, o.heads, o.head_dim, a.q.tokens,
               a.q.heads, a.q.head_dim);
  // Output rows must not share memory: two threads would write it.
  const int64_t inner = std::min(o.token_stride, o.head_stride),
                outer = std::max(o.token_stride, o.head_stride);
  const bool token_inside = o.token_stride <= o.head_stride;
  const int64_t inner_count = token_inside ? o.tokens : o.heads,
                outer_count = token_inside ? o.heads : o.tokens;
  if ((inner_count > 1 && inner < o.head_dim) ||
      (outer_count > 1 && outer < (inner_count > 1 ? inner * (inner_count - 1) : 0) + o.head_dim))
    return bad("out strides {} (token) and {} (head) make its rows overlap; head_dim is {}", o.token_stride,
               o.head_stride, o.head_dim);
  const Range out = range_of(o);
  if (overlap(out, range_of(a.q)) || overlap(out, range_of(a.k)) || overlap(out, range_of(a.v)))
    return bad("out overlaps q, k or v in memory; give it a buffer of its own");
  if (a.lse_log2 != nullptr) {
    const auto begin = reinterpret_cast<uintptr_t>(a.lse_log2);
    const Range lse{begin, begin + static_cast<uintptr_t>(4 * a.q.heads * a.q.tokens)};
    if (overlap(lse, out) || overlap(lse, range_of(a.q)) || overlap(lse, range_of(a.k)) ||
        overlap(lse, range_of(a.v)))
      return bad("lse_log2 overlaps another tensor in memory; give it a buffer of its own");
  }
  return {};
}

// Two numbers from 0 that nothing else bounds yet: their sum fits 64 bits, not 63.
uint64_t end_of(int64_t begin, int64_t len) {
  return static_cast<uint64_t>(begin) + static_cast<uint64_t>(len);
}

Status check_sequences(const LayerArgs& a) {
  int64_t q_end = 0;
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    const Sequence& s = a.sequences[i];
    if (s.q_len < 0 || s.k_len < 0 || s.q_begin < 0 || s.k_begin < 0 || s.q_offset < 0)
      return bad("sequences[{}] is q {}+{}, k {}+{}, q_offset {}; none may be negative", i, s.q_begin,
                 s.q_len, s.k_begin, s.k_len, s.q_offset);
    if (s.q_len > a.q.tokens || s.q_begin > a.q.tokens - s.q_len)
      return bad("sequences[{}] ends at query {}; q has {}", i, end_of(s.q_begin, s.q_len), a.q.tokens);
    if (s.k_len > a.k.tokens || s.k_begin > a.k.tokens - s.k_len)
      return bad("sequences[{}] ends at key {}; k has {}", i, end_of(s.k_begin, s.k_len), a.k.tokens);
    if (s.q_offset > kMaxTokens)
      return bad("sequences[{}].q_offset is {}; legal: 0 to {}", i, s.q_offset, kMaxTokens);
    if (s.q_begin < q_end)
      return bad(
          "sequences[{}] begins at query {}, inside or before the one before it (ends at {}); order them", i,
          s.q_begin, q_end);
    q_end = s.q_begin + s.q_len;
  }
  return {};
}

Status check_masks(const LayerArgs& a) {
  Sequence storage;
  const auto sequences = sequences_of(a, storage);
  if (a.masks.empty()) return {};
  if (a.masks.size() != sequences.size())
    return bad("masks are {} for {} sequences; one each, or none", a.masks.size(), sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Mask& mask = a.masks[i];
    if (sequences[i].q_len == 0 || sequences[i].k_len == 0) continue;
    if (mask.data == nullptr) return bad("masks[{}].data is null", i);
    if (reinterpret_cast<uintptr_t>(mask.data) % sizeof *mask.data != 0)
      return bad("masks[{}].data is not aligned to its f16 elements", i);
    if (mask.row_stride < sequences[i].k_len || mask.row_stride > kMaxTokens)
      return bad("masks[{}].row_stride is {}; legal: k_len, which is {}, to {}", i, mask.row_stride,
                 sequences[i].k_len, kMaxTokens);
  }
  return {};
}

}  // namespace

Status check_layer(const LayerArgs& a) {
  RR_TRY(check_tensor("q", a.q));
  RR_TRY(check_tensor("k", a.k, true));
  RR_TRY(check_tensor("v", a.v, true));
  RR_TRY(check_tensor("out", a.out));
  if (a.k.tokens != a.v.tokens || a.k.heads != a.v.heads || a.k.head_dim != a.v.head_dim)
    return bad("v is [{}, {}, {}]; must be k's [{}, {}, {}]", a.v.tokens, a.v.heads, a.v.head_dim, a.k.tokens,
               a.k.heads, a.k.head_dim);
  if (a.k.dtype != a.v.dtype)
    return bad("v.dtype is {}; must be k's {}", dtype_name(a.v.dtype), dtype_name(a.k.dtype));
  if (a.q.head_dim != a.k.head_dim)
    return bad("k.head_dim is {}; must be q's {}", a.k.head_dim, a.q.head_dim);
  if (a.q.heads % a.k.heads != 0)
    return bad("k.heads is {}; must divide q.heads, which is {}", a.k.heads, a.q.heads);
  // Times log2(e) it stays finite, and normal: a host may have switched denormals off, and -inf times 0 is NaN.
  constexpr float kLeastScale = 1e-37f, kMostScale = 1e38f;
  if (a.scale != 0 && !(a.scale >= kLeastScale && a.scale <= kMostScale))
    return bad("scale is {}; legal: {:g} to {:g}, or 0 for 1/sqrt(head_dim)", a.scale, kLeastScale,
               kMostScale);
  if (a.layer < -1) return bad("layer is {}; legal: -1 (unknown) or an index", a.layer);
  RR_TRY(check_sequences(a));
  if (a.sequences.empty() && a.k.tokens < a.q.tokens)
    return bad("k.tokens is {}, q.tokens {}; without sequences the queries are the last of the keys",
               a.k.tokens, a.q.tokens);
  RR_TRY(check_masks(a));
  return check_out(a);
}

std::span<const Sequence> sequences_of(const LayerArgs& a, Sequence& storage) {
  if (!a.sequences.empty()) return a.sequences;
  RR_ASSERT(a.k.tokens >= a.q.tokens);
  storage = {0, a.q.tokens, 0, a.k.tokens, a.k.tokens - a.q.tokens};
  return {&storage, 1};
}

}  // namespace routerelay
