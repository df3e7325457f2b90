// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): the same key and counter give the same
// draw on every machine and in any order.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/assert.h"

namespace routerelay {

class Philox {
 public:
  // `stream` separates uses of one seed: data, probes, a (layer, head, row).
  Philox(uint64_t seed, uint64_t stream) : key_{lo(seed), hi(seed)}, counter_{0, 0, lo(stream), hi(stream)} {}

  uint32_t next() {
    if (used_ == 4) refill();
    return block_[used_++];
  }
  // Uniform in (0, 1): never 0, so that its logarithm exists.
  double uniform() { return (static_cast<double>(next()) + 0.5) * 0x1p-32; }
  // Uniform in [0, n) by multiply-shift; the bias is below n / 2^32.
  uint32_t below(uint32_t n) {
    RR_ASSERT(n > 0);
    return static_cast<uint32_t>((static_cast<uint64_t>(next()) * n) >> 32);
  }
  // Standard normal by Box-Muller.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  static uint32_t lo(uint64_t x) { return static_cast<uint32_t>(x); }
  static uint32_t hi(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  void refill() {
    std::array<uint32_t, 4> c = counter_;
    std::array<uint32_t, 2> k = key_;
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c[0];
      const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c[2];
      c = {hi(p1) ^ c[1] ^ k[0], lo(p1), hi(p0) ^ c[3] ^ k[1], lo(p0)};
      k[0] += 0x9E3779B9u;
      k[1] += 0xBB67AE85u;
    }
    block_ = c;
    used_ = 0;
    if (++counter_[0] == 0) ++counter_[1];
  }

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace routerelay
