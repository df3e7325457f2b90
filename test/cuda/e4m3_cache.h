// SPDX-License-Identifier: Apache-2.0
// A problem's keys and values as e4m3 on the device, each head with a scale of its own. The problem's are rounded to
// what these are worth, exactly.
#pragma once

#include <cuda_fp8.h>

#include <cmath>
#include <optional>
#include <vector>

#include "cuda/device_buffer.h"
#include "routerelay/cuda.hpp"
#include "support/problem.h"

namespace routerelay::cuda {

class E4M3Cache {
 public:
  explicit E4M3Cache(support::Problem& p) : k_(p.k, -2), v_(p.v, 1) {}

  void give(AttendArgs& args) const {
    k_.give(args.k, args.k_scale);
    v_.give(args.v, args.v_scale);
  }

 private:
  struct Side {
    // Head h is times 2^(first + h).
    Side(support::OwnedTensor& from, int first) : tensor(from.view) {
      std::vector<uint8_t> bytes;
      std::vector<float> scales;
      for (int64_t h = 0; h < tensor.heads; ++h)
        scales.push_back(std::ldexp(1.0F, first + static_cast<int>(h)));
      for (int64_t t = 0; t < tensor.tokens; ++t)
        for (int64_t h = 0; h < tensor.heads; ++h)
          for (int64_t c = 0; c < tensor.head_dim; ++c) {
            const float unit = scales[static_cast<size_t>(h)];
            const __nv_fp8_e4m3 value(from.get(t, h, c) / unit);
            from.set(t, h, c, static_cast<float>(value) * unit);
            bytes.push_back(value.__x);
          }
      tensor.dtype = DType::kE4M3;
      tensor.head_stride = tensor.head_dim;
      tensor.token_stride = tensor.heads * tensor.head_dim;
      data.emplace(bytes.data(), static_cast<int64_t>(bytes.size()));
      scale.emplace(scales.data(), static_cast<int64_t>(scales.size() * sizeof(float)));
      tensor.data = data->as<std::byte>();
    }
    void give(Tensor& to, const float*& to_scale) const {
      to = tensor;
      to_scale = scale->as<float>();
    }

    Tensor tensor;
    std::optional<DeviceBuffer> data, scale;
  };

  Side k_, v_;
};

}  // namespace routerelay::cuda
