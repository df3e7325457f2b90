// SPDX-License-Identifier: Apache-2.0
// Launching a kernel of one argument, with the launch's own status: cudaGetLastError() would tell of what the caller,
// or a call before, left behind.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace routerelay::cuda {

template <class Params>
cudaError_t launch(void (*kernel)(Params), const Params& params, int grid, int threads, size_t shared_bytes,
                   cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, params);
}

}  // namespace routerelay::cuda
