// SPDX-License-Identifier: Apache-2.0
#include "supports.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace routerelay::ggml {
namespace {

constexpr std::array<int64_t, 5> kHeadDims = {64, 80, 96, 128, 256};
// op_params: scale, max_bias, softcap, precision; from word 4 on only zero means "not in use" for every version.
constexpr int kScale = 0, kMaxBias = 1, kSoftcap = 2, kPrecision = 3, kFirstUnknown = 4, kParams = 16;

// Bits that mean zero as a float: +0 only is what hosts write.
bool is_zero(int32_t word) {
  return word == 0;
}

Reason check_params(const HostTensor& node) {
  if (!is_zero(node.op_params[kMaxBias])) return Reason::kAlibi;
  if (!is_zero(node.op_params[kSoftcap])) return Reason::kSoftcap;
  const auto scale = std::bit_cast<float>(node.op_params[kScale]);
  if (!(scale > 0) || !std::isfinite(scale)) return Reason::kParams;
  const int32_t precision = node.op_params[kPrecision];
  if (precision != kPrecisionDefault && precision != kPrecisionF32) return Reason::kParams;
  for (int i = kFirstUnknown; i < kParams; ++i)
    if (node.op_params[i] != 0) return Reason::kParams;
  return Reason::kNone;
}

bool contiguous(const HostTensor& t, size_t element) {
  size_t expected = element;
  for (int i = 0; i < 4; ++i) {
    if (t.ne[i] != 1 && t.nb[i] != expected) return false;
    expected *= static_cast<size_t>(t.ne[i]);
  }
  return true;
}

// [d, tokens, heads, streams] as one [tokens, heads, d] view: heads and tokens lie whole elements (blocks, where the
// dtype has them) apart, streams whole tokens.
bool is_view(const HostTensor& t, DType dtype) {
  const auto unit = static_cast<size_t>(bytes_of(dtype, block_elements(dtype)));
  if (t.nb[0] != unit || t.nb[1] == 0 || t.nb[1] % unit != 0 || t.nb[2] % unit != 0) return false;
  return t.ne[3] == 1 || t.nb[3] % t.nb[1] == 0;
}

Reason check_shapes(const HostTensor& node, DType kv_dtype) {
  const HostTensor &q = *node.src[0], &k = *node.src[1], &v = *node.src[2];
  const int64_t d = q.ne[0];
  if (std::find(kHeadDims.begin(), kHeadDims.end(), d) == kHeadDims.end() || k.ne[0] != d || v.ne[0] != d)
    return Reason::kHeadDim;
  if (d % block_elements(kv_dtype) != 0) return Reason::kHeadDim;
  const bool heads = k.ne[2] > 0 && q.ne[2] % k.ne[2] == 0 && v.ne[2] == k.ne[2];
  if (!heads) return Reason::kHeads;
  const bool shapes = v.ne[1] == k.ne[1] && k.ne[3] == q.ne[3] && v.ne[3] == q.ne[3];
  const bool out = node.ne[0] == d && node.ne[1] == q.ne[2] && node.ne[2] == q.ne[1] && node.ne[3] == q.ne[3];
  if (!shapes || !out || !contiguous(node, 4) || !is_view(q, DType::kF32) || !is_view(k, kv_dtype) ||
      !is_view(v, kv_dtype))
    return Reason::kStrides;
  // The output has no gaps between its streams, and a Sequence has one q_begin and one k_begin.
  const bool one_place = tokens_between_streams(q) == q.ne[1] &&
                         (q.ne[3] == 1 || tokens_between_streams(k) == tokens_between_streams(v));
  return one_place ? Reason::kNone : Reason::kStrides;
}

Reason check_mask(const HostTensor& node) {
  const HostTensor* mask = node.src[3];
  const HostTensor &q = *node.src[0], &k = *node.src[1];
  if (mask == nullptr || mask->type != kTypeF16 || !contiguous(*mask, 2)) return Reason::kNoMask;
  const bool fits = mask->ne[0] == k.ne[1] && mask->ne[1] >= q.ne[1] && mask->ne[2] == 1 &&
                    (mask->ne[3] == 1 || mask->ne[3] == q.ne[3]);
  return fits ? Reason::kNone : Reason::kNoMask;
}

}  // namespace

int64_t tokens_between_streams(const HostTensor& t) {
  return t.ne[3] > 1 ? static_cast<int64_t>(t.nb[3] / t.nb[1]) : t.ne[1];
}

std::optional<DType> kv_dtype_of(int32_t type) {
  if (type == kTypeF16) return DType::kF16;
  if (type == kTypeBF16) return DType::kBF16;
  if (type == kTypeQ8_0) return DType::kQ8_0;
  return std::nullopt;
}

Reason why_declined(const HostTensor& node, const Claims& claims) {
  const HostTensor *q = node.src[0], *k = node.src[1], *v = node.src[2];
  if (q == nullptr || k == nullptr || v == nullptr) return Reason::kParams;
  if (q->ne[1] < claims.min_rows) return Reason::kFewRows;
  if (k->ne[1] < claims.min_keys) return Reason::kFewKeys;
  const std::optional<DType> kv_dtype = kv_dtype_of(k->type);
  if (q->type != kTypeF32 || node.type != kTypeF32 || !kv_dtype || v->type != k->type) return Reason::kTypes;
  if (node.src[4] != nullptr) return Reason::kSinks;
  if (const Reason r = check_params(node); r != Reason::kNone) return r;
  if (const Reason r = check_shapes(node, *kv_dtype); r != Reason::kNone) return r;
  return check_mask(node);
}

}  // namespace routerelay::ggml
