// SPDX-License-Identifier: Apache-2.0
// The launch function of each line of configs.def.
#pragma once

#include <cuda_runtime.h>

#include "cuda/attend/config.h"
#include "cuda/attend/params.h"

#define RR_ATTEND_INSTANCE(arch, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile) \
  launch_attend_##arch##_##dtype##_##kv_dtype##_##head_dim##_##q_block##_##k_block##_##heads_per_tile

namespace routerelay::cuda {

using AttendLaunch = cudaError_t (*)(const AttendParams& params, int multiprocessors, cudaStream_t stream);

#define RR_ATTEND_CONFIG(arch, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile)          \
  cudaError_t RR_ATTEND_INSTANCE(arch, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile)( \
      const AttendParams& params, int multiprocessors, cudaStream_t stream);
#include "cuda/attend/configs.def"
#undef RR_ATTEND_CONFIG

}  // namespace routerelay::cuda
