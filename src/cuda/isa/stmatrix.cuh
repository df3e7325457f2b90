// SPDX-License-Identifier: Apache-2.0
// Accumulator fragments to shared memory (sm_90).
#pragma once

#include <cstdint>
#include <cute/arch/copy_sm90.hpp>

namespace routerelay::cuda {

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8 (16 bytes).
__device__ inline void store_matrices(void* shared_row, const uint32_t (&part)[4]) {
  cute::SM90_U32x4_STSM_N::copy(part[0], part[1], part[2], part[3],
                                *static_cast<cute::uint128_t*>(shared_row));
}

}  // namespace routerelay::cuda
