// SPDX-License-Identifier: Apache-2.0
// How far a result may lie from the float64 softmax: one table for every back end, ISA and dtype.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "support/exact.h"

namespace routerelay::support {

struct Tolerance {
  double out = 0;       // maximum absolute error, values N(0, 1)
  double lse_log2 = 0;  // maximum absolute error where the LSE is finite
};

// |out| stays below 5 for N(0, 1) values, so half a unit in the last place of the output is at most 2^-7
// (bf16), 2^-10 (f16) or 2^-23 (f32). On top come the weights, which 16-bit kernels may round to the keys'
// dtype before the product with v, and f32 sums of up to some thousand terms. cases.md asks for 2e-2 (bf16),
// 4e-3 (f16) and 1e-3 (LSE).
inline Tolerance tolerance_of(DType kv_dtype, DType out_dtype, DType q_dtype) {
  const bool bf16 = kv_dtype == DType::kBF16 || out_dtype == DType::kBF16;
  const bool f16 = kv_dtype == DType::kF16 || out_dtype == DType::kF16;
  Tolerance t = bf16 ? Tolerance{2e-2, 1e-3} : f16 ? Tolerance{4e-3, 1e-3} : Tolerance{2e-5, 2e-5};
  // A 16-bit kernel rounds wider queries to the keys' dtype: logits move by 2^-9 / sqrt(3) (bf16) or an
  // eighth of it (f16) at one sigma, and a row that sees one key shows it in its LSE. Five sigma, in log2
  // units.
  if (kv_dtype == DType::kBF16 && q_dtype != DType::kBF16) t.lse_log2 = 8e-3;
  if (kv_dtype == DType::kF16 && q_dtype != DType::kF16) t.lse_log2 = 2e-3;
  return t;
}
// The reference computes in float64 from the stored inputs: only the output's own rounding is left.
inline Tolerance reference_tolerance(DType out_dtype) {
  return {out_dtype == DType::kBF16 ? 0x1p-7 : out_dtype == DType::kF16 ? 0x1p-10 : 1e-6, 4e-6};
}
inline Tolerance tolerance_of(const Problem& p) {
  return tolerance_of(p.k.view.dtype, p.out.view.dtype, p.q.view.dtype);
}

// Every query of every sequence within tolerance, every other one still NaN, nothing written elsewhere.
inline void expect_matches(const Problem& p, const Exact& e, const Tolerance& tolerance) {
  double worst = 0, worst_lse = 0;
  int64_t failures = 0;
  for (int64_t t = 0; t < e.q_tokens; ++t)
    for (int64_t h = 0; h < e.q_heads; ++h) {
      const double lse = p.lse_log2[static_cast<size_t>(h * e.q_tokens + t)], lse_exact = e.lse_at(t, h);
      if (std::isfinite(lse_exact)) {
        const double error = std::fabs(lse - lse_exact);
        if (!(error <= tolerance.lse_log2)) ++failures;
        worst_lse = std::fmax(worst_lse, error);
      } else if (std::isnan(lse_exact) ? !std::isnan(lse) : lse != lse_exact) {
        ++failures;
      }
      for (int64_t c = 0; c < e.head_dim; ++c) {
        const double got = p.out.get(t, h, c), want = e.out_at(t, h, c);
        if (std::isnan(want)) {
          failures += std::isnan(got) ? 0 : 1;
          continue;
        }
        const double error = std::fabs(got - want);
        if (!(error <= tolerance.out)) ++failures;  // NaN fails too
        worst = std::fmax(worst, error);
      }
    }
  EXPECT_EQ(failures, 0) << "out differs by up to " << worst << " (allowed " << tolerance.out
                         << "), lse_log2 by " << worst_lse << " (allowed " << tolerance.lse_log2 << ")";
  EXPECT_TRUE(p.out.guards_intact()) << "bytes outside out were written";
}

}  // namespace routerelay::support
