// SPDX-License-Identifier: Apache-2.0
// work, q, k, v -> out, lse_log2 on Hopper: one CTA a multiprocessor takes rows until none is left. Its first
// warpgroup moves data (of each stream of rows, one warp loads and one stores; e4m3 values are converted by two more),
// the other two compute.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "cuda/attend/sm90/consumer.cuh"
#include "cuda/attend/sm90/converter.cuh"
#include "cuda/attend/sm90/loader.cuh"
#include "cuda/attend/sm90/storer.cuh"
#include "cuda/isa/launch.h"

namespace routerelay::cuda {

inline constexpr int kSm90Threads = (1 + kConsumers) * kWarpgroup;
// Of 168 registers a thread at launch: two consumers take what the movers give back. Two streams, a second head, or
// rings of their own for keys and values are more for a mover to keep in mind.
constexpr bool has_busy_movers(const AttendConfig& c) {
  return tile_queries(c) == 64 || c.heads_per_tile > 1 || is_quantised(c);
}
constexpr uint32_t mover_registers(const AttendConfig& c) {
  return has_busy_movers(c) ? 56 : 40;
}
constexpr uint32_t consumer_registers(const AttendConfig& c) {
  return has_busy_movers(c) ? 224 : 232;
}

// Plain parameters: nvcc 13.0 cannot name a struct among them in the host's stub.
template <DType dtype, DType kv_dtype, int head_dim, int q_block, int k_block, int heads_per_tile>
__global__ void __launch_bounds__(kSm90Threads, 1) attend_sm90(const __grid_constant__ AttendParams params) {
  constexpr AttendConfig cfg{Arch::sm90, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile};
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared<cfg>*>(memory);
  set_up(shared);
  // The same for the warp where the compiler can see it: what follows from it stays out of vector registers.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), warpgroup = warp / 4;
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<mover_registers(cfg)>();
    const int stream = warp / 2;
    if (stream >= Cut<cfg>::kStreams) {
      if constexpr (is_quantised(cfg)) Converter<cfg>(shared.stream[0], warp % kConverters).run();
      return;
    }
    if (warp % 2 == 0)
      Loader<cfg>(params, shared.stream[stream], stream).run();
    else
      store_rows(params, shared.stream[stream]);
  } else {
    cutlass::arch::warpgroup_reg_alloc<consumer_registers(cfg)>();
    Consumer<cfg>(params, shared, warpgroup - 1).run();
  }
}

template <DType dtype, DType kv_dtype, int head_dim, int q_block, int k_block, int heads_per_tile>
cudaError_t launch_sm90(const AttendParams& params, int multiprocessors, cudaStream_t stream) {
  const auto kernel = attend_sm90<dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile>;
  constexpr AttendConfig cfg{Arch::sm90, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile};
  constexpr int kSharedBytes = sizeof(Shared<cfg>);
  static_assert(kSharedBytes <= Stream<cfg>::kLimit);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  return launch<AttendParams>(kernel, params, multiprocessors, kSm90Threads, kSharedBytes, stream);
}

}  // namespace routerelay::cuda
