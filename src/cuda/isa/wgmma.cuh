// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix products (sm_90a): 64 rows by N columns, 32 bytes deep, f32 sums in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cute/arch/mma_sm90_gmma.hpp>
#include <utility>

namespace routerelay::cuda {

using cute::SM90::GMMA::Major;
using cute::SM90::GMMA::ScaleOut;

// The instruction for element type T and N columns: `Shared` takes A from shared memory, `Registers` from registers.
template <class T, int N>
struct Wgmma;
#define RR_WGMMA(T, NAME, N)                                                               \
  template <>                                                                              \
  struct Wgmma<T, N> {                                                                     \
    template <Major b>                                                                     \
    using Shared = cute::SM90::GMMA::MMA_64x##N##x16_F32##NAME##NAME##_SS<Major::K, b>;    \
    template <Major b>                                                                     \
    using Registers = cute::SM90::GMMA::MMA_64x##N##x16_F32##NAME##NAME##_RS<Major::K, b>; \
  };
RR_WGMMA(__nv_bfloat16, BF16, 64)
RR_WGMMA(__nv_bfloat16, BF16, 128)
RR_WGMMA(__nv_bfloat16, BF16, 256)
RR_WGMMA(__half, F16, 64)
RR_WGMMA(__half, F16, 128)
RR_WGMMA(__half, F16, 256)
#undef RR_WGMMA
// e4m3 by e4m3, 32 deep: as many bytes a row as the others.
template <int N>
struct WgmmaE4M3;
template <>
struct WgmmaE4M3<128> {
  using Shared = cute::SM90::GMMA::MMA_64x128x32_F32E4M3E4M3_SS_TN<>;
};

// A matrix of 128-byte swizzled rows in shared memory, 8-row groups 1024 bytes apart. Of the 64 bits that wgmma takes,
// only the low half differs between matrices: kept alone, it is one uniform register, and moving on is one addition.
struct Matrix {
  uint32_t low = 0;

  // `next_columns`: bytes from 64 columns to the next 64, for operands whose columns lie side by side (Major::MN).
  // The address is made the same for the warp where the compiler can see it: otherwise each product waits for its
  // descriptor to travel from vector registers, 60 clocks where the product takes 64.
  static __device__ Matrix at(const void* shared, uint32_t next_columns = 0) {
    const uint32_t address = __shfl_sync(~0u, cute::cast_smem_ptr_to_uint(shared), 0);
    return {address >> 4 | next_columns >> 4 << 16};
  }
  // The same matrix, `bytes` further on.
  __device__ Matrix moved(uint32_t bytes) const { return {low + (bytes >> 4)}; }
  __device__ uint64_t descriptor() const {
    constexpr uint32_t k128ByteSwizzle = 1u << 30, kGroupBytes = 1024;
    return uint64_t{k128ByteSwizzle | kGroupBytes >> 4} << 32 | low;
  }
};

namespace detail {
template <class Op, int N, size_t... i>
__device__ void multiply(Matrix a, Matrix b, float (&sums)[N], ScaleOut keep, std::index_sequence<i...>) {
  Op::fma(a.descriptor(), b.descriptor(), sums[i]..., keep);
}
template <class Op, int N, size_t... i>
__device__ void multiply(const uint32_t* a, Matrix b, float (&sums)[N], ScaleOut keep,
                         std::index_sequence<i...>) {
  Op::fma(a[0], a[1], a[2], a[3], b.descriptor(), sums[i]..., keep);
}
}  // namespace detail

// sums = a b + (keep ? sums : 0), asynchronously: a is a Matrix, or the four registers of 16 columns.
template <class Op, class A, int N>
__device__ void multiply(A a, Matrix b, float (&sums)[N], ScaleOut keep) {
  detail::multiply<Op>(a, b, sums, keep, std::make_index_sequence<N>());
}

// Register operands are final; products may be issued.
__device__ inline void begin_products() {
  cute::warpgroup_arrive();
}
__device__ inline void end_products() {
  cute::warpgroup_commit_batch();
}
// All but the newest `pending` groups of products are done.
template <int pending>
__device__ void wait_for_products() {
  cute::warpgroup_wait<pending>();
}
// The compiler sees registers change at the instruction, not at its end: after a wait, nothing that reads them may
// have been moved before it.
template <class T, int N>
__device__ void settled(T (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) cute::warpgroup_fence_operand(registers[i]);
}

}  // namespace routerelay::cuda
