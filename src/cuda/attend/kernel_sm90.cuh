// SPDX-License-Identifier: Apache-2.0
// work, q, k, v -> out, lse_log2 on Hopper: one CTA a multiprocessor takes rows until none is left. Its first
// warpgroup moves data (one warp loads, one stores), the other two compute.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "cuda/attend/sm90_consumer.cuh"
#include "cuda/attend/sm90_loader.cuh"
#include "cuda/attend/sm90_storer.cuh"

namespace routerelay::cuda {

inline constexpr int kSm90Threads = (1 + kConsumers) * kWarpgroup;
// Of 168 registers a thread at launch: two consumers take what the movers give back.
inline constexpr int kMoverRegisters = 40, kConsumerRegisters = 232;

// Plain parameters: nvcc 13.0 cannot name a struct among them in the host's stub.
template <DType dtype, int head_dim, int q_block, int k_block>
__global__ void __launch_bounds__(kSm90Threads, 1) attend_sm90(const __grid_constant__ AttendParams params) {
  constexpr AttendConfig cfg{Arch::sm90, dtype, head_dim, q_block, k_block};
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared<cfg>*>(memory);
  set_up(shared);
  const int warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<kMoverRegisters>();
    const int warp = threadIdx.x / 32;
    if (warp == 0) Loader<cfg>(params, shared).run();
    if (warp == 1) store_rows(params, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
    Consumer<cfg>(params, shared, warpgroup - 1).run();
  }
}

// Enqueues the kernel; the last error is the caller's to read.
template <DType dtype, int head_dim, int q_block, int k_block>
cudaError_t launch_sm90(const AttendParams& params, int multiprocessors, cudaStream_t stream) {
  const auto kernel = attend_sm90<dtype, head_dim, q_block, k_block>;
  constexpr int kSharedBytes = sizeof(Shared<AttendConfig{Arch::sm90, dtype, head_dim, q_block, k_block}>);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  kernel<<<multiprocessors, kSm90Threads, kSharedBytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace routerelay::cuda
