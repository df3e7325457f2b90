// SPDX-License-Identifier: Apache-2.0
// Fills a bf16 or e4m3 tensor on the current device with noise.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "routerelay/tensor.hpp"

namespace routerelay::bench {

// `to` is contiguous. Element i of token t is noise(tensor, t * width + i), of a width of heads * head_dim; it lies in
// the place of token slots[t], where they are given. e4m3 is over e4m3_scale() of its head. Enqueued on the default
// stream.
cudaError_t fill_with_noise(const Tensor& to, int64_t tokens, const int32_t* slots, uint32_t tensor);

}  // namespace routerelay::bench
