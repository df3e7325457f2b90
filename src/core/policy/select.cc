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
// What mass is estimated by: probabilities as they are, exponentials of raw scores; 0 where that is not finite.
// Returns the sum.
double weigh(Router router, std::span<const float> score, std::vector<float>& weight) {
  weight.assign(score.begin(), score.end());
  if (!is_softmax(router)) {
    float best = -std::numeric_limits<float>::infinity();
    for (float s : score)
      if (s > best) best = s;
    for (float& w : weight) w = std::exp(w - best);
  }
  double total[4] = {};  // one sum would wait for every addition
  for (size_t i = 0; i < weight.size(); ++i) {
    const float w = weight[i];
    weight[i] = std::fabs(w) < std::numeric_limits<float>::infinity() ? w : 0.0f;  // false for NaN
    total[i % 4] += static_cast<double>(weight[i]);
  }
  return (total[0] + total[1]) + (total[2] + total[3]);
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

// Competitors that the smallest prefix with mass p holds, both in rank order. Shares of the mass sum to 1 over the
// scored blocks, or are all 0 when nothing is finite.
int32_t prefix_count(const Forced& forced, const ScoredBlocks& blocks, double p, double total,
                     SelectScratch& scratch) {
  double mass = 0;
  int32_t count = 0;
  for (uint32_t rank = 0; rank < scratch.ranking.size() && mass < p; ++rank) {
    const uint32_t i = scratch.ranking.at(rank);
    if (total > 0) mass += static_cast<double>(static_cast<float>(scratch.weight[i] / total));
    count += forced.holds(blocks.ids[i]) ? 0 : 1;
  }
  return count;
}

int32_t competitor_count(const Row& row, const Options& options, const Forced& forced,
                         const ScoredBlocks& blocks, SelectScratch& scratch) {
  const SelectionOptions& s = options.selection;
  if (s.kind == Selection::kTopK && s.k > 0) return s.k;
  const int32_t least = std::max(0, floor_count(row, s) - forced.count());
  if (s.kind == Selection::kTopK) return least;
  const int32_t cap = static_cast<int32_t>(std::lround(s.cap * row.visible_blocks));
  const double total = weigh(options.router.kind, blocks.score, scratch.weight);
  return std::min(std::max(least, prefix_count(forced, blocks, s.p, total, scratch)), cap);
}

// scratch.picked of the competitors that the selection takes.
void pick(const Row& row, const Options& options, const Forced& forced, const ScoredBlocks& blocks,
          SelectScratch& scratch) {
  scratch.picked.assign(blocks.ids.size(), 0);
  if (options.selection.kind == Selection::kThreshold) {
    mark_threshold(options.router.kind, blocks.score, options.selection.threshold, scratch.picked);
    if (!blocks.rescue.empty())
      mark_threshold(options.router.kind, blocks.rescue, options.selection.rescue_threshold, scratch.picked);
    for (size_t i = 0; i < blocks.ids.size(); ++i)
      if (forced.holds(blocks.ids[i])) scratch.picked[i] = 0;
    return;
  }
  int32_t left = competitor_count(row, options, forced, blocks, scratch);
  for (uint32_t rank = 0; rank < scratch.ranking.size() && left > 0; ++rank) {
    const uint32_t i = scratch.ranking.at(rank);
    if (forced.holds(blocks.ids[i])) continue;
    scratch.picked[i] = 1;
    --left;
  }
}

// The best `count` below the cut, ascending.
void find_near(const Forced& forced, const ScoredBlocks& blocks, int32_t count, SelectScratch& scratch,
               std::vector<int32_t>& near) {
  near.clear();
  for (uint32_t rank = 0; rank < scratch.ranking.size() && count > 0; ++rank) {
    const uint32_t i = scratch.ranking.at(rank);
    if (scratch.picked[i] != 0 || forced.holds(blocks.ids[i])) continue;
    near.push_back(blocks.ids[i]);
    --count;
  }
  std::sort(near.begin(), near.end());
}

}  // namespace

void Ranking::begin(std::span<const float> score) {
  keys_.resize(score.size());
  for (size_t i = 0; i < score.size(); ++i) keys_[i] = rank_key(score[i], static_cast<uint32_t>(i));
  sorted_ = 0;
}

void Ranking::sort_up_to(size_t rank) {
  // At least as many again: who asks for every rank in turn pays for a sort, not for a search per rank.
  const size_t end = std::min(std::max(rank + 1, sorted_ + std::max(step_, sorted_)), keys_.size());
  const auto at = [this](size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
  if (end < keys_.size()) std::nth_element(at(sorted_), at(end), keys_.end(), std::greater<>());
  std::sort(at(sorted_), at(end), std::greater<>());
  sorted_ = end;
}

std::span<const uint64_t> Ranking::best(uint32_t count) {
  if (count < size() && count > sorted_)
    std::nth_element(keys_.begin() + static_cast<std::ptrdiff_t>(sorted_),
                     keys_.begin() + static_cast<std::ptrdiff_t>(count), keys_.end(), std::greater<>());
  return std::span(keys_).first(std::min(count, size()));
}

Challengers challengers_of(const RelayOptions& relay, int32_t k, int32_t c) {
  Challengers d;
  switch (relay.mode) {
    case Relay::kOff:
    case Relay::kFixed:
      return {};
    case Relay::kScreen:
      return {static_cast<int32_t>(std::lround(std::min(relay.near * c, 0x1p30))), 0};
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

void mark_best(std::span<const int32_t> ids, std::span<const float> score, int32_t count, Ranking& ranking,
               std::span<uint8_t> marks) {
  ranking.begin(score);
  for (uint64_t key : ranking.best(static_cast<uint32_t>(std::max(0, count))))
    marks[static_cast<size_t>(ids[Ranking::position_of(key)])] = 1;
}

void select_blocks(const Row& row, const Options& options, const ScoredBlocks& blocks, SelectScratch& scratch,
                   Selected& out) {
  const Forced forced = Forced::of(row, options);
  const int32_t c = floor_count(row, options.selection);
  scratch.ranking.begin(blocks.score);
  scratch.ranking.expect(2 * c +
                         forced.count());  // the floor's blocks and as many challengers; top_p may ask on
  pick(row, options, forced, blocks, scratch);

  // Written without a branch per block: which ones are picked no processor foresees.
  out.route.resize(static_cast<size_t>(forced.count()) + blocks.ids.size() + 1);
  int32_t* end = out.route.data();
  for (int32_t b = 0; b < forced.sink; ++b) *end++ = b;
  const int32_t* first = end;
  for (size_t i = 0; i < blocks.ids.size(); ++i) {
    *end = blocks.ids[i];
    end += scratch.picked[i];
  }
  out.competitors = static_cast<int32_t>(end - first);
  for (int32_t b = forced.local; b < forced.visible; ++b) *end++ = b;
  out.route.resize(static_cast<size_t>(end - out.route.data()));

  find_near(forced, blocks, challengers_of(options.relay, out.competitors, c).near, scratch, out.near);
}

}  // namespace routerelay
