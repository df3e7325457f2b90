// SPDX-License-Identifier: Apache-2.0
// One thread an element, in strides of the grid.
#include <cuda_bf16.h>

#include "bench/cuda/fill.h"
#include "bench/cuda/noise.h"

namespace routerelay::bench {
namespace {

__global__ void fill(__nv_bfloat16* to, int64_t tokens, int64_t width, const int32_t* slots,
                     uint32_t tensor) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < tokens * width;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t token = i / width, slot = slots == nullptr ? token : slots[token];
    to[slot * width + i % width] = __float2bfloat16_rn(noise(tensor, i));
  }
}

}  // namespace

cudaError_t fill_with_noise(void* bf16, int64_t tokens, int64_t width, const int32_t* slots,
                            uint32_t tensor) {
  constexpr int kBlocks = 2048, kThreads = 256;
  fill<<<kBlocks, kThreads>>>(static_cast<__nv_bfloat16*>(bf16), tokens, width, slots, tensor);
  return cudaGetLastError();
}

}  // namespace routerelay::bench
