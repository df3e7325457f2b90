// SPDX-License-Identifier: Apache-2.0
// How far a result may lie from the float64 softmax: one table for every back end, ISA and dtype.
#pragma once

#include <cstdint>

#include "routerelay/engine.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay::support {

struct Tolerance {
  double out = 0;  // maximum absolute error, values N(0, 1)
  double lse_log2 =
      0;  // maximum absolute error of a finite LSE up to 16; beyond, in proportion, as f32's steps grow
};

// What a kernel multiplies in. Sums are f32 or better everywhere.
enum class Products : uint8_t {
  kF64,        // the reference
  kF32,        // 16-bit inputs and q8_0 widened, which is exact
  kBF16,       // queries and weights rounded to bf16: bf16 keys and values on AVX-512 BF16 and AMX
  kBF16Pairs,  // weights rounded to bf16, the rest to 16 bits: f16 and q8_0 keys and values on AMX
};

inline Products products_of(Isa isa, DType kv_dtype) {
  const bool amx = isa == Isa::kAmxBf16;
  if (kv_dtype == DType::kBF16 && (amx || isa == Isa::kAvx512Bf16)) return Products::kBF16;
  return amx && kv_dtype != DType::kF32 ? Products::kBF16Pairs : Products::kF32;
}

// |out| stays below 5 for N(0, 1) values: storing it costs at most half a unit in the last place, 2^-7 (bf16), 2^-10
// (f16) or 2^-22 (f32). f32 products and an own exp2 add some ten units of f32. A weight rounded to bf16 is off by
// up to 2^-8 of itself: a row of many keys averages that, half the values of one that sees two may have it. Queries
// that are not bf16 would move the LSE by 2^-9 / sqrt(3) per sigma; no test that uses this table gives bf16 keys any
// others.
inline Tolerance tolerance_of(DType out_dtype, Products products) {
  const double stored = out_dtype == DType::kBF16 ? 0x1p-7 : out_dtype == DType::kF16 ? 0x1p-10 : 0x1p-22;
  switch (products) {
    case Products::kF64:
      return {stored + 1e-6, 4e-6};
    case Products::kF32:
      return {stored + 2e-5, 2e-5};
    case Products::kBF16:
    case Products::kBF16Pairs:
      break;
  }
  return {stored + 4e-3, 1e-4};
}

}  // namespace routerelay::support
