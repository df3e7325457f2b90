// SPDX-License-Identifier: Apache-2.0
// The numbers in q, k and v of bench cuda-attend, each by its place: the GPU makes all, the CPU those that it checks.
#pragma once

#include <cstdint>

namespace routerelay::bench {

// Nearly normal, of mean 0 and variance 1: the sum of a hash's four words. Integers and one f32 product, so that both
// processors get the same bits. The hash is splitmix64's (Steele, Lea, Flood 2014).
constexpr float noise(uint32_t tensor, int64_t index) {
  uint64_t bits = static_cast<uint64_t>(index) * 4 + tensor;
  bits = (bits + 1) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  bits ^= bits >> 31;
  int32_t sum = 0;
  for (int word = 0; word < 4; ++word) sum += static_cast<int32_t>(bits >> (16 * word) & 0xffff);
  constexpr float kMean = 4 * 65535 / 2, kSigma = 37837.2F;  // 2^16 / sqrt(3)
  return (static_cast<float>(sum) - kMean) * (1 / kSigma);
}

// What a head's e4m3 values are times, so that noise, which ends at 3.5, fits; each head's is another.
constexpr float e4m3_scale(int64_t head) {
  constexpr float kLargest = 448, kMostNoise = 3.5F;
  return kMostNoise / kLargest * (1 + static_cast<float>(head) / 16);
}

}  // namespace routerelay::bench
