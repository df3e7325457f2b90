// SPDX-License-Identifier: Apache-2.0
// Between e4m3 and 16-bit elements, 16 at a time. e4m3 has no infinities; its largest value is 448.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "cuda/isa/math.cuh"

namespace routerelay::cuda {

template <class Element>
__device__ float2 unpacked(uint32_t pair) {
  if constexpr (std::is_same_v<Element, __half>)
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  else
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
}

// Largest magnitude of eight elements; NaN does not count.
template <class Element>
__device__ float largest_of(uint4 eight) {
  const uint32_t pair[4] = {eight.x, eight.y, eight.z, eight.w};
  float most = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 value = unpacked<Element>(pair[i]);
    most = fmaxf(most, fmaxf(fabsf(value.x), fabsf(value.y)));
  }
  return most;
}

// Nothing is rounded by it.
struct PowerOfTwo {
  float value, inverse;

  // That brings `most` to 128 and more, below 256, as far as both have f32 exponents. NaN for infinity.
  static __device__ PowerOfTwo that_fits_e4m3(float most) {
    constexpr int kBias = 127, kTop = 7;
    const int exponent = static_cast<int>(__float_as_uint(most) >> 23);  // biased
    if (exponent == 255) return {__int_as_float(0x7fffffff), 1};
    const int up = min(2 * kBias + kTop - exponent, 2 * kBias - 1);
    return {__int_as_float(up << 23), __int_as_float((2 * kBias - up) << 23)};
  }
};

// Two f32 -> two e4m3 in the low half, rounded to nearest.
__device__ inline uint32_t to_e4m3(float2 pair) {
  return __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
}
__device__ inline __half2 from_e4m3(uint32_t pair) {
  const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return reinterpret_cast<const __half2&>(raw);
}

// 16 elements times `scale` -> two e4m3 parts whose sum they are, nearly: the first has four of an element's bits, the
// second the next four, as far down as 2^-10. bf16, which has eight, loses nothing above 2^-2; f16 a 2^-9th at most.
template <class Element>
__device__ void split_e4m3(uint4 first, uint4 second, float scale, uint4& large, uint4& rest) {
  const uint32_t from[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  uint32_t parts[2][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float2 value = unpacked<Element>(from[i]);
    value.x *= scale, value.y *= scale;
    const uint32_t first_bits = to_e4m3(value);
    const float2 kept = __half22float2(from_e4m3(first_bits));
    parts[0][i / 2] |= first_bits << i % 2 * 16;
    parts[1][i / 2] |= to_e4m3({value.x - kept.x, value.y - kept.y}) << i % 2 * 16;
  }
  large = {parts[0][0], parts[0][1], parts[0][2], parts[0][3]};
  rest = {parts[1][0], parts[1][1], parts[1][2], parts[1][3]};
}

// Four e4m3 -> two registers of two f16 each, exactly.
__device__ inline uint2 widened(uint32_t four) {
  const __half2 low = from_e4m3(four & 0xffff), high = from_e4m3(four >> 16);
  return {reinterpret_cast<const uint32_t&>(low), reinterpret_cast<const uint32_t&>(high)};
}

}  // namespace routerelay::cuda
