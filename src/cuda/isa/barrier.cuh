// SPDX-License-Identifier: Apache-2.0
// Waiting and signalling inside one CTA: mbarriers, turns between warpgroups, and the fence before the copy engine.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cstdint>

namespace routerelay::cuda {

// An mbarrier in shared memory. Waits are by parity: phase 0 ends with the first completion.
using Barrier = cutlass::arch::ClusterTransactionBarrier;

// Keeps the compiler from moving accesses to memory past this point: arrive() alone does not.
__device__ inline void keep_order() {
  asm volatile("" ::: "memory");
}

// Position in a ring of N slots, and the parity of the next visit to that slot.
template <int N>
struct Ring {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++slot == N) slot = 0, parity ^= 1;
  }
};

// Barrier `id` (of 16, 0 is __syncthreads) opens when `threads` have arrived or waited.
__device__ inline void named_wait(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// What this thread stored in shared memory becomes visible to the copy engine and to wgmma.
__device__ inline void fence_for_async_reads() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace routerelay::cuda
