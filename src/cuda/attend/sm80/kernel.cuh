// SPDX-License-Identifier: Apache-2.0
// work, q, k, v -> out, lse_log2 on sm_80 and everything later: one CTA a row, in the order of the work items. Copies,
// products and softmax of a CTA take turns; what one leaves idle, another one on the same multiprocessor takes.
#pragma once

#include <cuda_runtime.h>

#include "cuda/attend/sm80/row.cuh"
#include "cuda/isa/launch.h"

namespace routerelay::cuda {

// Plain parameters: nvcc 13.0 cannot name a struct among them in the host's stub.
template <DType dtype, DType kv_dtype, int head_dim, int q_block, int k_block, int heads_per_tile>
__global__ void __launch_bounds__(Sm80Layout<AttendConfig{Arch::sm80, dtype, kv_dtype, head_dim, q_block,
                                                          k_block, heads_per_tile}>::kThreads)
    attend_sm80(const __grid_constant__ AttendParams params) {
  constexpr AttendConfig cfg{Arch::sm80, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile};
  extern __shared__ __align__(1024) char memory[];
  // The first places, as far as they are taken, then all others; what is left over is at the grid's end.
  const int n_first = min(params.counts->first, kMaxFirst);
  const int index = static_cast<int>(blockIdx.x) + (blockIdx.x < n_first ? 0 : kMaxFirst - n_first);
  if (index >= kMaxFirst + params.n_work) return;
  const Work& work = params.work[index];
  if (work.q_count == 0) return;  // room that the caller left, or moved to the first places
  Sm80Row<cfg>(params, memory, work).run();
}

template <DType dtype, DType kv_dtype, int head_dim, int q_block, int k_block, int heads_per_tile>
cudaError_t launch_sm80(const AttendParams& params, int, cudaStream_t stream) {
  using S = Sm80Layout<AttendConfig{Arch::sm80, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile}>;
  const auto kernel = attend_sm80<dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
  if (error != cudaSuccess) return error;
  return launch<AttendParams>(kernel, params, kMaxFirst + params.n_work, S::kThreads, S::kBytes, stream);
}

}  // namespace routerelay::cuda
