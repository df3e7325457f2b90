// SPDX-License-Identifier: Apache-2.0
#include "core/policy/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "core/policy/scorer.h"

namespace routerelay {
namespace {

// Orders like (score descending, id ascending) when sorted descending; NaN below -inf.
uint64_t rank_key(float score, uint32_t position) {
  uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 and 0 tie
  if (std::isnan(score)) {
    bits = 0;
  } else {
    bits = (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
  }
  return (static_cast<uint64_t>(bits) << 32) | (0xffffffffu - position);
}
uint32_t position_of(uint64_t key) {
  return 0xffffffffu - static_cast<uint32_t>(key);
}

void rank_all(std::span<const float> score, std::vector<uint64_t>& ranked) {
  ranked.resize(score.size());
  for (size_t i = 0; i < score.size(); ++i) ranked[i] = rank_key(score[i], static_cast<uint32_t>(i));
}

// Shares of the row's mass over the scored blocks, summing to 1 (or all 0 when nothing is finite).
void estimate_mass(Router router, std::span<const float> score, std::vector<float>& estimate) {
  estimate.assign(score.begin(), score.end());
  if (!is_softmax(router)) {
    float best = -std::numeric_limits<float>::infinity();
    for (float s : score)
      if (s > best) best = s;
    for (float& e : estimate) e = std::exp(e - best);
  }
  double total = 0;
  for (float& e : estimate) {
    if (!std::isfinite(e)) e = 0;
    total += e;
  }
  if (total > 0)
    for (float& e : estimate) e = static_cast<float>(e / total);
}

// Marks everything at or above `share` of the row's best.
void mark_threshold(Router router, std::span<const float> score, double share, std::vector<uint8_t>& picked) {
  float best = -std::numeric_limits<float>::infinity();
  for (float s : score)
    if (s > best) best = s;
  const double cut = is_softmax(router) ? share * best : best + std::log(share);
  for (size_t i = 0; i < score.size(); ++i)
    if (score[i] >= cut) picked[i] = 1;
}

// Competitors that the smallest prefix with mass p holds, both in rank order.
int32_t prefix_count(const Forced& forced, const ScoredBlocks& blocks, double p,
                     const SelectScratch& scratch) {
  double mass = 0;
  int32_t count = 0;
  for (uint64_t key : scratch.ranked) {
    if (mass >= p) break;
    const uint32_t i = position_of(key);
    mass += scratch.estimate[i];
    count += forced.holds(blocks.ids[i]) ? 0 : 1;
  }
  return count;
}

int32_t competitor_count(const Row& row, const Options& options, const Forced& forced,
                         const ScoredBlocks& blocks, const SelectScratch& scratch) {
  const SelectionOptions& s = options.selection;
  if (s.kind == Selection::kTopK && s.k > 0) return s.k;
  const int32_t least = std::max(0, floor_count(row, s) - forced.count());
  if (s.kind == Selection::kTopK) return least;
  const int32_t cap = static_cast<int32_t>(std::lround(s.cap * row.visible_blocks));
  return std::min(std::max(least, prefix_count(forced, blocks, s.p, scratch)), cap);
}

}  // namespace

Challengers challengers_of(const RelayOptions& relay, int32_t k, int32_t c) {
  Challengers d;
  switch (relay.mode) {
    case Relay::kOff:
    case Relay::kFixed:
      return {};
    case Relay::kScreen:
      return {static_cast<int32_t>(std::lround(relay.near * c)), 0};
    case Relay::kStrict:
    case Relay::kMass:
      d = k <= 16 ? Challengers{12, 12} : Challengers{std::max(12, k / 4), std::max(8, k / 8)};
      break;
    case Relay::kRepair:
      d = {std::max(16, 2 * k), 8};
      break;
    case Relay::kCertify:
      d = {k, 0};
      break;
  }
  if (relay.near_blocks >= 0) d.near = relay.near_blocks;
  if (relay.probes >= 0) d.probes = relay.probes;
  return d;
}

void best_blocks(std::span<const int32_t> ids, std::span<const float> score, int32_t count,
                 std::vector<uint64_t>& ranked, std::vector<int32_t>& out) {
  rank_all(score, ranked);
  const auto n = std::min(ranked.size(), static_cast<size_t>(std::max(0, count)));
  const auto cut = ranked.begin() + static_cast<std::ptrdiff_t>(n);
  if (n < ranked.size()) std::nth_element(ranked.begin(), cut, ranked.end(), std::greater<>());
  std::sort(ranked.begin(), cut, std::greater<>());
  for (size_t i = 0; i < n; ++i) out.push_back(ids[position_of(ranked[i])]);
}

void select_blocks(const Row& row, const Options& options, const ScoredBlocks& blocks, SelectScratch& scratch,
                   Selected& out) {
  const Forced forced = Forced::of(row, options);
  rank_all(blocks.score, scratch.ranked);
  std::sort(scratch.ranked.begin(), scratch.ranked.end(), std::greater<>());
  scratch.picked.assign(blocks.ids.size(), 0);

  if (options.selection.kind == Selection::kThreshold) {
    mark_threshold(options.router.kind, blocks.score, options.selection.threshold, scratch.picked);
    if (!blocks.rescue.empty())
      mark_threshold(options.router.kind, blocks.rescue, options.selection.rescue_threshold, scratch.picked);
  } else {
    if (options.selection.kind == Selection::kTopP)
      estimate_mass(options.router.kind, blocks.score, scratch.estimate);
    int32_t left = competitor_count(row, options, forced, blocks, scratch);
    for (uint64_t key : scratch.ranked) {
      if (left == 0) break;
      const uint32_t i = position_of(key);
      if (forced.holds(blocks.ids[i])) continue;
      scratch.picked[i] = 1;
      --left;
    }
  }

  out.route.clear();
  out.near.clear();
  out.competitors = 0;
  for (int32_t b = 0; b < forced.sink; ++b) out.route.push_back(b);
  for (size_t i = 0; i < blocks.ids.size(); ++i) {
    if (!scratch.picked[i] || forced.holds(blocks.ids[i])) continue;
    out.route.push_back(blocks.ids[i]);
    ++out.competitors;
  }
  for (int32_t b = forced.local; b < forced.visible; ++b) out.route.push_back(b);

  int32_t near_left =
      challengers_of(options.relay, out.competitors, floor_count(row, options.selection)).near;
  for (uint64_t key : scratch.ranked) {
    if (near_left == 0) break;
    const uint32_t i = position_of(key);
    if (scratch.picked[i] || forced.holds(blocks.ids[i])) continue;
    out.near.push_back(blocks.ids[i]);
    --near_left;
  }
  std::sort(out.near.begin(), out.near.end());
}

}  // namespace routerelay
