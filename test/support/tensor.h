// SPDX-License-Identifier: Apache-2.0
// A tensor that owns its bytes: [tokens, heads, head_dim] in any dtype and layout, with guard bytes behind
// the last element so that a write past the end is seen.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/convert.h"
#include "core/rng.h"
#include "routerelay/tensor.hpp"

namespace routerelay::support {

// How [tokens, heads, head_dim] lies in memory.
enum class Layout : uint8_t {
  kTokenMajor,  // heads of a token side by side: PyTorch's [tokens, heads, head_dim]
  kHeadMajor,   // tokens of a head side by side: llama.cpp's cache
  kPadded,      // token-major with unused elements after every head and every token
};

class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim,
              Layout layout = Layout::kTokenMajor) {
    const int64_t unit = std::max<int64_t>(8, block_elements(dtype));
    const int64_t head_pad = layout == Layout::kPadded ? unit : 0,
                  token_pad = layout == Layout::kPadded ? 3 * unit : 0;
    MutableTensor t{nullptr,
                    dtype,
                    tokens,
                    heads,
                    head_dim,
                    heads * (head_dim + head_pad) + token_pad,
                    head_dim + head_pad};
    if (layout == Layout::kHeadMajor) {
      t.token_stride = head_dim;
      t.head_stride = tokens * head_dim;
    }
    // + head_dim: a view of no tokens still has an address.
    const int64_t elements = tokens * heads * (head_dim + head_pad) + tokens * token_pad + head_dim;
    bytes_.assign(static_cast<size_t>(bytes_of(dtype, elements) + kGuard), std::byte{kCanary});
    t.data = bytes_.data();
    mutable_view = t;
    view = {t.data, dtype, tokens, heads, head_dim, t.token_stride, t.head_stride};
  }
  OwnedTensor(OwnedTensor&&) = default;  // a vector's move keeps its address, so the views stay true
  OwnedTensor& operator=(OwnedTensor&&) = default;

  float get(int64_t token, int64_t head, int64_t c) const {
    return load_f32(view.at(token, head), view.dtype, c);
  }
  // In q8_0 the whole block is quantised again, and one value that is not finite takes it along.
  void set(int64_t token, int64_t head, int64_t c, float value) {
    if (view.dtype != DType::kQ8_0) return store_f32(mutable_view.at(token, head), view.dtype, c, value);
    float block[kQ8Elements];
    const int64_t first = c / kQ8Elements * kQ8Elements;
    for (int64_t i = 0; i < kQ8Elements; ++i) block[i] = first + i == c ? value : get(token, head, first + i);
    store_q8_0(mutable_view.at(token, head) + bytes_of(view.dtype, first), block);
  }
  void set_row(int64_t token, int64_t head, const std::vector<float>& row) {
    std::byte* to = mutable_view.at(token, head);
    for (int64_t c = 0; c < view.head_dim; c += block_elements(view.dtype))
      view.dtype == DType::kQ8_0 ? store_q8_0(to + bytes_of(view.dtype, c), row.data() + c)
                                 : store_f32(to, view.dtype, c, row[static_cast<size_t>(c)]);
  }
  template <class Fn>  // fn(token, head, c) -> value
  void fill(const Fn& fn) {
    std::vector<float> row(static_cast<size_t>(view.head_dim));
    for (int64_t t = 0; t < view.tokens; ++t)
      for (int64_t h = 0; h < view.heads; ++h) {
        for (int64_t c = 0; c < view.head_dim; ++c)
          row[static_cast<size_t>(c)] = static_cast<float>(fn(t, h, c));
        set_row(t, h, row);
      }
  }
  void fill_normal(uint64_t seed, uint64_t stream, double sigma = 1) {
    Philox random(seed, stream);
    fill([&](int64_t, int64_t, int64_t) { return sigma * random.normal(); });
  }
  void fill_nan() {
    fill([](int64_t, int64_t, int64_t) { return std::numeric_limits<float>::quiet_NaN(); });
  }
  // Padding and the bytes behind the end are as they were made.
  bool guards_intact() const {
    std::vector<bool> used(bytes_.size(), false);
    const auto row_bytes = static_cast<size_t>(bytes_of(view.dtype, view.head_dim));
    for (int64_t t = 0; t < view.tokens; ++t)
      for (int64_t h = 0; h < view.heads; ++h) {
        const auto begin = static_cast<size_t>(view.at(t, h) - bytes_.data());
        for (size_t i = 0; i < row_bytes; ++i) used[begin + i] = true;
      }
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (!used[i] && bytes_[i] != std::byte{kCanary}) return false;
    return true;
  }
  // Element for element the same bits; layouts may differ.
  bool same_bits(const OwnedTensor& other) const {
    const auto row_bytes = static_cast<size_t>(bytes_of(view.dtype, view.head_dim));
    for (int64_t t = 0; t < view.tokens; ++t)
      for (int64_t h = 0; h < view.heads; ++h)
        if (std::memcmp(view.at(t, h), other.view.at(t, h), row_bytes) != 0) return false;
    return true;
  }

  Tensor view;
  MutableTensor mutable_view;

 private:
  static constexpr int64_t kGuard = 256;
  static constexpr unsigned char kCanary = 0xA5;
  std::vector<std::byte> bytes_;
};

}  // namespace routerelay::support
