// SPDX-License-Identifier: Apache-2.0
// One thread an element, in strides of the grid.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "bench/cuda/fill.h"
#include "bench/cuda/noise.h"

namespace routerelay::bench {
namespace {

template <class Element>
__global__ void fill(Element* to, int64_t tokens, int64_t heads, int64_t head_dim, const int32_t* slots,
                     uint32_t tensor) {
  const int64_t width = heads * head_dim;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < tokens * width;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t token = i / width, slot = slots == nullptr ? token : slots[token];
    const float unit = sizeof(Element) == 1 ? e4m3_scale(i % width / head_dim) : 1;
    to[slot * width + i % width] = Element(noise(tensor, i) / unit);
  }
}

}  // namespace

cudaError_t fill_with_noise(const Tensor& to, int64_t tokens, const int32_t* slots, uint32_t tensor) {
  constexpr int kBlocks = 2048, kThreads = 256;
  void* const data = const_cast<std::byte*>(to.data);
  if (to.dtype == DType::kE4M3)
    fill<<<kBlocks, kThreads>>>(static_cast<__nv_fp8_e4m3*>(data), tokens, to.heads, to.head_dim, slots,
                                tensor);
  else
    fill<<<kBlocks, kThreads>>>(static_cast<__nv_bfloat16*>(data), tokens, to.heads, to.head_dim, slots,
                                tensor);
  return cudaGetLastError();
}

}  // namespace routerelay::bench
