// SPDX-License-Identifier: Apache-2.0
// Matrix products of one warp (sm_80 and later): 16 rows by 8 columns, 16 deep, f32 sums in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cute/arch/mma_sm80.hpp>
#include <type_traits>

namespace routerelay::cuda {

// sums += a b. With t = lane % 4 and g = lane / 4, a thread holds of
// a    [16, 16]: rows g, g + 8, g, g + 8 of columns 2 t, 2 t, 2 t + 8, 2 t + 8, each with the column after it;
// b    [16, 8]:  rows 2 t, 2 t + 8 of column g, each with the row after it;
// sums [16, 8]:  columns 2 t and 2 t + 1 of row g, then of row g + 8.
template <class Element>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  using Op = std::conditional_t<std::is_same_v<Element, __half>, cute::SM80_16x8x16_F32F16F16F32_TN,
                                cute::SM80_16x8x16_F32BF16BF16F32_TN>;
  Op::fma(sums[0], sums[1], sums[2], sums[3], a[0], a[1], a[2], a[3], b0, b1, sums[0], sums[1], sums[2],
          sums[3]);
}

}  // namespace routerelay::cuda
