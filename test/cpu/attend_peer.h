// SPDX-License-Identifier: Apache-2.0
// The peer of a CPU attend kernel: the same sum in plain loops, inputs and weights rounded as the kernel rounds them.
// What it errs by against float64, doubled, is what the kernel may err by. And the tests that hold a kernel to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/convert.h"
#include "core/mask.h"
#include "cpu/attend/attend.h"
#include "cpu/attend/plan.h"
#include "cpu/isa_test.h"
#include "support/exact.h"
#include "support/exec.h"
#include "support/matches.h"
#include "support/problem.h"
#include "support/status.h"

namespace routerelay {

struct Peer {
  const support::Problem& p;
  const Routes& routes;
  support::Products products;

  static float to_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }
  // Queries, keys and values.
  float round(float x) const {
    if (products == support::Products::kF32) return x;
    const float high = to_bf16(x);
    return products == support::Products::kBF16Pairs && std::isfinite(high) ? high + to_bf16(x - high) : high;
  }
  float round_weight(float x) const { return products == support::Products::kF32 ? x : to_bf16(x); }

  // Largest error of out and lse_log2 over one query of one head, whose row is `row`.
  void compare(const Sequence& s, int64_t row, int64_t i, int64_t head, const support::Exact& exact,
               support::Tolerance& worst) const {
    const int64_t kv_head = head / (p.q.view.heads / p.k.view.heads), token = s.q_begin + i;
    const float factor = p.scale * std::numbers::log2e_v<float>;
    std::vector<int64_t> keys;
    std::vector<float> weight;
    for (int64_t j = 0; j < std::min(s.k_len, s.q_offset + i + 1); ++j)
      if (sees(head, row, j) && p.shown(static_cast<size_t>(&s - p.sequences.data()), i, j))
        keys.push_back(s.k_begin + j);
    float top = -std::numeric_limits<float>::infinity(), total = 0;
    for (const int64_t key : keys) {
      float dot = 0;
      for (int64_t c = 0; c < exact.head_dim; ++c)
        dot += round(p.q.get(token, head, c)) * round(p.k.get(key, kv_head, c));
      weight.push_back(dot * factor);
      top = std::max(top, dot * factor);
    }
    for (float& w : weight) {
      w = std::exp2(w - top);
      total += w;
      w = round_weight(w);
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
  const Peer peer{p, routes, support::products_of(isa, p.k.view.dtype)};
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
  // Half a unit in the last place of the output's dtype, and what our own exp2 may be off: four of f32's, or, where
  // weights are bf16 anyway, 3.3e-6 of a sum (kFraction4).
  const double exp2_lse = peer.products == support::Products::kF32 ? 0 : 3.3e-6 * std::numbers::log2e;
  const DType out = p.out.view.dtype;
  const double unit = out == DType::kBF16 ? 0x1p-8 : out == DType::kF16 ? 0x1p-11 : 0x1p-24;
  return {2 * worst.out + largest * (unit + 0x1p-21),
          2 * worst.lse_log2 + (1 + largest_lse) * 0x1p-21 + 2 * exp2_lse};
}

namespace support {

// Attend on one instruction set, under the problem's masks where it has some.
class AttendOnIsa : public IsaTest<Isa> {
 protected:
  Status attend(Problem& p, const Routes& routes, int threads = 2) {
    TestExec exec(threads, isa());
    AttendArgs args = p.attend_args(routes);
    if (!p.masks.empty()) {
      RR_TRY(read_masks(p.masks, p.rows, exec.exec, masked_));
      args.masks = &masked_;
    }
    return cpu::attend(args, exec.exec);
  }
  void expect_exact(Problem& p, const Routes& routes, int threads = 2) {
    RR_ASSERT_OK(attend(p, routes, threads));
    const Exact exact = exact_attention(p, routes);
    expect_matches(p, exact, peer_tolerance(p, routes, exact, isa()));
  }
  MaskedRows masked_;  // of the last call under masks
};

}  // namespace support
}  // namespace routerelay
