// SPDX-License-Identifier: Apache-2.0
// Partial attention over disjoint sets of keys -> attention over their union:
//   lse = log2(sum_i 2^lse_i),   out = sum_i 2^(lse_i - lse) out_i.
// LSEs are in base 2 everywhere in this library.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace routerelay {

// One query's result over one set of keys. A set without a key has out 0 and lse_log2 -inf.
struct PartialAttention {
  const float* out = nullptr;  // [head_dim] f32
  float lse_log2 = -std::numeric_limits<float>::infinity();
};

// Writes out [head_dim] and returns its lse_log2. `out` may be one of the parts' own.
inline float merge_partials(std::span<const PartialAttention> parts, int64_t head_dim, float* out) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  double best = kNone;
  for (const PartialAttention& p : parts) best = std::fmax(best, p.lse_log2);
  double total = 0;
  // -inf - -inf is NaN: sets without keys are left out rather than weighed.
  for (const PartialAttention& p : parts)
    if (p.lse_log2 != kNone) total += std::exp2(p.lse_log2 - best);
  for (int64_t c = 0; c < head_dim; ++c) {
    double sum = 0;
    for (const PartialAttention& p : parts)
      if (p.lse_log2 != kNone) sum += std::exp2(p.lse_log2 - best) / total * p.out[c];
    out[c] = static_cast<float>(sum);
  }
  return static_cast<float>(total == 0 ? kNone : best + std::log2(total));
}

}  // namespace routerelay
