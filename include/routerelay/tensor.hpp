// SPDX-License-Identifier: Apache-2.0
// Borrowed, strided views of q, k, v and out, and where each sequence lies inside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace routerelay {

// kQ8_0, for k and v only: blocks of 32 elements along head_dim, 34 bytes each and as ggml stores them: an f16
// scale, then 32 int8, little endian; an element is scale * int8.
// kE4M3, for k and v of attend on CUDA only: FP8 without infinities, times a scale of each head.
enum class DType : uint8_t { kF32, kBF16, kF16, kQ8_0, kE4M3 };

inline constexpr int64_t kQ8Elements = 32, kQ8Bytes = 34;

// What head_dim and strides are multiples of, so that a head begins and ends with a block.
constexpr int64_t block_elements(DType dtype) {
  return dtype == DType::kQ8_0 ? kQ8Elements : 1;
}
// Of consecutive elements, whole blocks. Always inline: kernels call it, and a copy of it that is compiled with their
// instruction set must never be the one that others are linked to.
[[gnu::always_inline]] constexpr int64_t bytes_of(DType dtype, int64_t elements) {
  if (dtype == DType::kQ8_0) return elements / kQ8Elements * kQ8Bytes;
  return elements * (dtype == DType::kF32 ? 4 : dtype == DType::kE4M3 ? 1 : 2);
}
constexpr int64_t alignment_of(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kE4M3 ? 1 : 2;
}
constexpr const char* dtype_name(DType dtype) {
  return dtype == DType::kF32    ? "f32"
         : dtype == DType::kBF16 ? "bf16"
         : dtype == DType::kF16  ? "f16"
         : dtype == DType::kQ8_0 ? "q8_0"
                                 : "e4m3";
}

// [tokens, heads, head_dim], any strides (in elements, whole blocks) whose last is 1. Borrows, never owns.
template <class Byte>
struct BasicTensor {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t token_stride = 0;  // elements from one token to the next
  int64_t head_stride = 0;   // elements from one head to the next

  // Address of element 0 of (token, head). 64-bit throughout: offsets pass 2^31 at long contexts.
  Byte* at(int64_t token, int64_t head) const {
    return data + bytes_of(dtype, token * token_stride + head * head_stride);
  }
  // What may be written may be read.
  operator BasicTensor<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {data, dtype, tokens, heads, head_dim, token_stride, head_stride};
  }
};
using Tensor = BasicTensor<const std::byte>;
using MutableTensor = BasicTensor<std::byte>;

// A contiguous [tokens, heads, head_dim] view.
inline Tensor contiguous(const void* data, DType dtype, int64_t tokens, int64_t heads, int64_t head_dim) {
  return {static_cast<const std::byte*>(data), dtype, tokens, heads, head_dim, heads * head_dim, head_dim};
}
inline MutableTensor contiguous(void* data, DType dtype, int64_t tokens, int64_t heads, int64_t head_dim) {
  return {static_cast<std::byte*>(data), dtype, tokens, heads, head_dim, heads * head_dim, head_dim};
}

// One sequence of a ragged batch. Query i (of q_len) sits at position q_offset + i and sees the keys
// j <= q_offset + i, j < k_len. An offset of k_len or more shows every key to every query.
struct Sequence {
  int64_t q_begin = 0;  // first query token in q and out
  int64_t q_len = 0;
  int64_t k_begin = 0;  // first key token in k and v
  int64_t k_len = 0;
  int64_t q_offset = 0;  // position of query 0; a chunk at the end of its cache has k_len - q_len
};

}  // namespace routerelay
