// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's answers as our statuses, the current device's size, and descriptors for the tensor copy engine.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "routerelay/status.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay::cuda {

// `step`: what failed, in words.
Status device_status(cudaError_t error, const char* step);

// Returns early when the runtime refuses.
#define RR_CUDA(expression) RR_TRY(::routerelay::cuda::device_status((expression), #expression))

struct Device {
  int compute_capability = 0;  // 90 for sm_90
  int multiprocessors = 0;
};
// Of the current device.
Result<Device> current_device();

// A map of [tokens, heads, head_dim] in boxes of 128 bytes by `box_tokens` tokens of one head of one page, 128-byte
// swizzled. Page i of `page_tokens` begins at i * page_stride elements; all tokens may be one page.
Status make_tensor_map(const Tensor& tensor, int64_t page_tokens, int64_t page_stride, int box_tokens,
                       CUtensorMap& map);

}  // namespace routerelay::cuda
