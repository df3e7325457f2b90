// SPDX-License-Identifier: Apache-2.0
// Operand fragments from shared memory (sm_75 and later).
#pragma once

#include <cstdint>
#include <cute/arch/copy_sm75.hpp>

namespace routerelay::cuda {

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8 (16 bytes), and gets
// elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each.
__device__ inline void load_matrices(const void* shared_row, uint32_t (&part)[4]) {
  cute::SM75_U32x4_LDSM_N::copy(*static_cast<const cute::uint128_t*>(shared_row), part[0], part[1], part[2],
                                part[3]);
}
// The same of the transposed matrices: rows 2 (l % 4) and 2 (l % 4) + 1 of column l / 4.
__device__ inline void load_matrices_transposed(const void* shared_row, uint32_t (&part)[4]) {
  cute::SM75_U16x8_LDSM_T::copy(*static_cast<const cute::uint128_t*>(shared_row), part[0], part[1], part[2],
                                part[3]);
}

}  // namespace routerelay::cuda
