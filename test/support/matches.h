// SPDX-License-Identifier: Apache-2.0
// An attention result against the float64 softmax of the same problem.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "support/exact.h"
#include "support/tolerance.h"

namespace routerelay::support {

// Every query of every sequence within tolerance, every other one still NaN, nothing written elsewhere.
inline void expect_matches(const Problem& p, const Exact& e, const Tolerance& tolerance) {
  double worst = 0, worst_lse = 0;
  int64_t failures = 0;
  for (int64_t t = 0; t < e.q_tokens; ++t)
    for (int64_t h = 0; h < e.q_heads; ++h) {
      const double lse = p.lse_log2[static_cast<size_t>(h * e.q_tokens + t)], lse_exact = e.lse_at(t, h);
      if (std::isfinite(lse_exact)) {
        const double error = std::fabs(lse - lse_exact);
        if (!(error <= tolerance.lse_log2 * std::fmax(1, std::fabs(lse_exact) / 16))) ++failures;
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
