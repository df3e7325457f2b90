// SPDX-License-Identifier: Apache-2.0
// The peer of a CPU attend kernel: the same sum in plain loops, inputs and weights rounded as the kernel rounds them.
// What it errs by against float64, doubled, is what the kernel may err by.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/convert.h"
#include "cpu/attend/plan.h"
#include "support/exact.h"
#include "support/tolerance.h"

namespace routerelay {

struct Peer {
  const support::Problem& p;
  const Routes& routes;
  bool bf16;

  float round(float x) const { return bf16 ? bf16_to_f32(f32_to_bf16(x)) : x; }

  // Largest error of out and lse_log2 over one query of one head, whose row is `row`.
  void compare(const Sequence& s, int64_t row, int64_t i, int64_t head, const support::Exact& exact,
               support::Tolerance& worst) const {
    const int64_t kv_head = head / (p.q.view.heads / p.k.view.heads), token = s.q_begin + i;
    const float factor = p.scale * std::numbers::log2e_v<float>;
    std::vector<int64_t> keys;
    std::vector<float> weight;
    for (int64_t j = 0; j < std::min(s.k_len, s.q_offset + i + 1); ++j)
      if (sees(head, row, j)) keys.push_back(s.k_begin + j);
    float top = -std::numeric_limits<float>::infinity(), total = 0;
    for (const int64_t key : keys) {
      float dot = 0;
      for (int64_t c = 0; c < exact.head_dim; ++c)
        dot += round(p.q.get(token, head, c) * factor) * round(p.k.get(key, kv_head, c));
      weight.push_back(dot);
      top = std::max(top, dot);
    }
    for (float& w : weight) {
      w = std::exp2(w - top);
      total += w;
      w = round(w);
    }
    if (keys.empty()) return;
    for (int64_t c = 0; c < exact.head_dim; ++c) {
      float sum = 0;
      for (size_t j = 0; j < keys.size(); ++j) sum += weight[j] * round(p.v.get(keys[j], kv_head, c));
      worst.out = std::max(worst.out, std::fabs(sum / total - exact.out_at(token, head, c)));
    }
    worst.lse_log2 = std::max(worst.lse_log2, std::fabs(top + std::log2(total) - exact.lse_at(token, head)));
  }

  bool sees(int64_t head, int64_t row, int64_t key) const {
    if (routes.full) return true;
    const auto list = routes.lists[head * p.rows.size() + row];
    return std::binary_search(list.begin(), list.end(), static_cast<int32_t>(key / p.rows.k_block));
  }
};

inline support::Tolerance peer_tolerance(const support::Problem& p, const Routes& routes,
                                         const support::Exact& exact, Isa isa) {
  const Isa kernel = cpu::isa_for(isa, p.k.view.dtype);
  const Peer peer{p, routes, kernel == Isa::kAvx512Bf16 || kernel == Isa::kAmxBf16};
  support::Tolerance worst;
  int64_t row = 0;
  for (const Sequence& s : p.sequences)
    for (int64_t first = 0; first < s.q_len; first += p.rows.q_block, ++row)
      for (int64_t i = first; i < std::min<int64_t>(s.q_len, first + p.rows.q_block); ++i)
        for (int64_t h = 0; h < exact.q_heads; ++h) peer.compare(s, row, i, h, exact, worst);
  double largest = 0, largest_lse = 0;
  for (const double x : exact.out) largest = std::isfinite(x) ? std::max(largest, std::fabs(x)) : largest;
  for (const double x : exact.lse_log2)
    largest_lse = std::isfinite(x) ? std::max(largest_lse, std::fabs(x)) : largest_lse;
  // Half a unit in the last place of the output's dtype, and four of f32's, which our own exp2 may be off.
  const DType out = p.out.view.dtype;
  const double unit = out == DType::kBF16 ? 0x1p-8 : out == DType::kF16 ? 0x1p-11 : 0x1p-24;
  return {2 * worst.out + largest * (unit + 0x1p-21), 2 * worst.lse_log2 + (1 + largest_lse) * 0x1p-21};
}

}  // namespace routerelay
