// SPDX-License-Identifier: Apache-2.0
// What a core can do at best: per ISA one loop of nothing but multiply-adds on registers. The yardstick of bench peak.
#pragma once

#include <cstdint>

#include "routerelay/engine.hpp"

namespace routerelay::cpu {

// Runs `iterations` steps and returns the floating-point operations done (a multiply-add is two).
using PeakLoop = int64_t (*)(int64_t iterations);

int64_t peak_scalar(int64_t iterations);      // f32, the baseline's SSE2: multiply and add apart
int64_t peak_avx2(int64_t iterations);        // f32 FMA
int64_t peak_avx512(int64_t iterations);      // f32 FMA
int64_t peak_avx512bf16(int64_t iterations);  // bf16 pairs into f32, vdpbf16ps
int64_t peak_amx(int64_t iterations);         // bf16 tiles into f32, tdpbf16ps

inline PeakLoop peak_loop(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return peak_scalar;
    case Isa::kAvx2:
      return peak_avx2;
    case Isa::kAvx512:
      return peak_avx512;
    case Isa::kAvx512Bf16:
      return peak_avx512bf16;
    case Isa::kAmxBf16:
      return peak_amx;
  }
  return peak_scalar;
}

}  // namespace routerelay::cpu
