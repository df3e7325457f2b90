// SPDX-License-Identifier: Apache-2.0
// A problem's keys or values in e4m3, each head with a scale of its own, as a cache would hold them.
#pragma once

#include <cuda_fp8.h>

#include <cmath>
#include <vector>

#include "core/rows.h"
#include "support/tensor.h"

namespace routerelay::cuda {

class E4M3Tensor {
 public:
  // `from` is rounded to what its e4m3 values are worth, exactly: the second time nothing changes. Infinity, which e4m3
  // has not, becomes the largest value.
  explicit E4M3Tensor(support::OwnedTensor& from) : view(strided_like(from.view)) {
    bytes_.assign(static_cast<size_t>((view.tokens - 1) * view.token_stride +
                                      (view.heads - 1) * view.head_stride + view.head_dim),
                  std::byte{0xff});
    view.data = bytes_.data();
    for (int64_t h = 0; h < view.heads; ++h) {
      const float unit = scale_for(from, h);
      scale.push_back(unit);
      for (int64_t t = 0; t < view.tokens; ++t)
        for (int64_t c = 0; c < view.head_dim; ++c) {
          const __nv_fp8_e4m3 value(from.get(t, h, c) / unit);
          from.set(t, h, c, static_cast<float>(value) * unit);
          bytes_[static_cast<size_t>(t * view.token_stride + h * view.head_stride + c)] =
              std::byte{value.__x};
        }
    }
  }
  E4M3Tensor(const E4M3Tensor&) = delete;
  E4M3Tensor& operator=(const E4M3Tensor&) = delete;

  Tensor view;
  std::vector<float> scale;  // [heads]

 private:
  // Strides are multiples of 16 bytes here.
  static Tensor strided_like(Tensor t) {
    const auto whole = [](int64_t elements) { return ceil_div(elements, 16) * 16; };
    t.dtype = DType::kE4M3;
    if (t.head_stride > t.token_stride) {
      t.token_stride = whole(t.token_stride), t.head_stride = t.tokens * t.token_stride;
      return t;
    }
    const int64_t behind_heads = t.token_stride - t.heads * t.head_stride;
    t.head_stride = whole(t.head_stride);
    t.token_stride = t.heads * t.head_stride + whole(behind_heads);
    return t;
  }
  // The least power of two by which the head's largest value fits: bf16 and f16 hold the products.
  static float scale_for(const support::OwnedTensor& from, int64_t head) {
    constexpr float kMost = 448;
    float most = 0;
    for (int64_t t = 0; t < from.view.tokens; ++t)
      for (int64_t c = 0; c < from.view.head_dim; ++c) {
        const float size = std::fabs(from.get(t, head, c));
        if (std::isfinite(size)) most = std::fmax(most, size);
      }
    if (most == 0) return 1;
    int exponent = 0;
    const float mantissa = std::frexp(most / kMost, &exponent);
    return std::ldexp(1.0F, mantissa == 0.5F ? exponent - 1 : exponent);
  }

  std::vector<std::byte> bytes_;
};

}  // namespace routerelay::cuda
