// SPDX-License-Identifier: Apache-2.0
// Copies from device to shared memory that run beside the threads which ask for them (sm_80 and later).
#pragma once

#include <cstdint>
#include <cute/arch/copy_sm80.hpp>

namespace routerelay::cuda {

// 16 bytes, both sides aligned to them; zeros where `there` is false, and then nothing is read.
__device__ inline void copy_chunk(void* shared, const void* global, bool there) {
  cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>::copy(*static_cast<const cute::uint128_t*>(global),
                                                               *static_cast<cute::uint128_t*>(shared), there);
}
// Closes the group of the copies that this thread asked for since the last one; it may be empty.
__device__ inline void end_copies() {
  cute::cp_async_fence();
}
// All but the newest `pending` groups of this thread have arrived. Others see them after a barrier.
template <int pending>
__device__ void wait_for_copies() {
  cute::cp_async_wait<pending>();
}

}  // namespace routerelay::cuda
