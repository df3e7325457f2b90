// SPDX-License-Identifier: Apache-2.0
// Fills a bf16 tensor on the current device with noise.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace routerelay::bench {

// Element i of token t is noise(tensor, t * width + i), at bf16[(slots[t] or t) * width + i]. Enqueued on the default
// stream.
cudaError_t fill_with_noise(void* bf16, int64_t tokens, int64_t width, const int32_t* slots, uint32_t tensor);

}  // namespace routerelay::bench
