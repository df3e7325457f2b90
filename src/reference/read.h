// SPDX-License-Identifier: Apache-2.0
// Tokens of one head as float, and the dot product that every stage of the reference uses.
#pragma once

#include <cstdint>
#include <vector>

#include "core/assert.h"
#include "core/convert.h"
#include "routerelay/tensor.hpp"

namespace routerelay::reference {

// Tokens [begin, begin + count) of one head: [count, head_dim] f32, appended to `to`.
inline void append_tokens(const Tensor& t, int64_t begin, int64_t count, int64_t head,
                          std::vector<float>& to) {
  RR_ASSERT(begin >= 0 && count >= 0 && begin + count <= t.tokens && head >= 0 && head < t.heads);
  const size_t old = to.size();
  to.resize(old + static_cast<size_t>(count * t.head_dim));
  float* next = to.data() + old;
  for (int64_t token = begin; token < begin + count; ++token)
    for (int64_t c = 0; c < t.head_dim; ++c) *next++ = load_f32(t.at(token, head), t.dtype, c);
}
inline std::vector<float> read_tokens(const Tensor& t, int64_t begin, int64_t count, int64_t head) {
  std::vector<float> tokens;
  append_tokens(t, begin, count, head, tokens);
  return tokens;
}

inline double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return sum;
}

// Mean of `count` vectors, [head_dim] f32; `count` is at least 1.
inline std::vector<float> mean_of(const float* vectors, int64_t count, int64_t head_dim) {
  std::vector<float> mean(static_cast<size_t>(head_dim));
  for (int64_t c = 0; c < head_dim; ++c) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(vectors[i * head_dim + c]);
    mean[static_cast<size_t>(c)] = static_cast<float>(sum / static_cast<double>(count));
  }
  return mean;
}

}  // namespace routerelay::reference
