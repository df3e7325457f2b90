// SPDX-License-Identifier: Apache-2.0
// Scalar conversions between f32, bf16, f16 (round to nearest, ties to even) and q8_0, and reading a view as f32.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "routerelay/tensor.hpp"

namespace routerelay {

inline float bf16_to_f32(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

inline uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);  // NaN stays one
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, mantissa = h & 0x3ffu;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline uint16_t f32_to_f16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more round to inf
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 lines the bits up with a subnormal's
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// Element i of consecutive q8_0 blocks.
inline float load_q8_0(const std::byte* blocks, int64_t i) {
  const std::byte* block = blocks + i / kQ8Elements * kQ8Bytes;
  uint16_t scale;
  std::memcpy(&scale, block, 2);
  return f16_to_f32(scale) * static_cast<float>(static_cast<int8_t>(block[2 + i % kQ8Elements]));
}

// Every element of the block becomes `value`, which is not finite.
inline void spoil_q8_0(std::byte* block, float value) {
  const uint16_t scale = f32_to_f16(value);
  std::memcpy(block, &scale, 2);
  std::memset(block + 2, 1, kQ8Elements);
}

// 32 elements into one block, the largest of them 127 steps. A value that is not finite takes the whole block along,
// and so, as NaN, does one beyond 127 times the largest f16.
inline void store_q8_0(std::byte* block, const float* x) {
  float largest = 0;
  for (int i = 0; i < kQ8Elements; ++i) {
    const float size = x[i] < 0 ? -x[i] : x[i];
    if (!(size <= 0x1.fffffep127f)) return spoil_q8_0(block, x[i]);
    largest = size > largest ? size : largest;
  }
  const uint16_t scale = f32_to_f16(largest / 127);
  std::memcpy(block, &scale, 2);
  // In steps of the scale as it was rounded: an element is off by half a step, or by what the last step lacks.
  const float unit = f16_to_f32(scale);
  for (int i = 0; i < kQ8Elements; ++i) {
    const float steps = unit > 0 ? x[i] / unit : 0;
    const float bounded = steps < -127 ? -127 : steps > 127 ? 127 : steps;
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(bounded + (bounded < 0 ? -0.5f : 0.5f)));
  }
}

// Element i behind p, where a block begins.
inline float load_f32(const std::byte* p, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float f;
    std::memcpy(&f, p + i * 4, 4);
    return f;
  }
  if (dtype == DType::kQ8_0) return load_q8_0(p, i);
  uint16_t h;
  std::memcpy(&h, p + i * 2, 2);
  return dtype == DType::kBF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

// q8_0 has no single elements: store_q8_0.
inline void store_f32(std::byte* p, DType dtype, int64_t i, float f) {
  if (dtype == DType::kF32) {
    std::memcpy(p + i * 4, &f, 4);
    return;
  }
  const uint16_t h = dtype == DType::kBF16 ? f32_to_bf16(f) : f32_to_f16(f);
  std::memcpy(p + i * 2, &h, 2);
}

}  // namespace routerelay
