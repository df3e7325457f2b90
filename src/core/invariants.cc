// SPDX-License-Identifier: Apache-2.0
#include "core/invariants.h"

#include <algorithm>

namespace routerelay {
namespace {

// fn(list index, row) of every list of a call; whether it held of all.
template <class Fn>
bool all_lists(const Rows& rows, int64_t q_heads, const Fn& fn) {
  for (int64_t head = 0; head < q_heads; ++head)
    for (int64_t row = 0; row < rows.size(); ++row)
      if (!fn(head * rows.size() + row, rows.rows[static_cast<size_t>(row)])) return false;
  return true;
}

bool disjoint(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::none_of(a.begin(), a.end(),
                      [b](int32_t id) { return std::binary_search(b.begin(), b.end(), id); });
}

}  // namespace

bool holds(const Rows& rows) {
  const Row* before = nullptr;
  for (const Row& row : rows.rows) {
    if (row.sequence < 0 || row.sequence >= static_cast<int64_t>(rows.runs.size())) return false;
    const BlockRun& run = rows.runs[static_cast<size_t>(row.sequence)];
    const bool fits = row.q_count >= 1 && row.q_count <= rows.q_block && row.k_begin == run.k_begin &&
                      row.first_block == run.first_block && row.visible_keys >= 0 &&
                      row.visible_keys <= run.k_len &&
                      row.visible_blocks == ceil_div(row.visible_keys, rows.k_block);
    const bool has_diagonal = row.diagonal >= 0 && row.diagonal <= std::max(0, row.visible_blocks - 1);
    const bool follows =
        before == nullptr || row.sequence > before->sequence ||
        (row.sequence == before->sequence && row.q_begin == before->q_begin + before->q_count);
    if (!fits || !has_diagonal || !follows) return false;
    before = &row;
  }
  return true;
}

bool holds(const Summary& s, const SummaryNeeds& needs, const Rows& rows) {
  const auto blocks = static_cast<size_t>(s.kv_heads * s.n_blocks),
             vectors = blocks * static_cast<size_t>(s.head_dim);
  const auto sized = [](const auto& array, bool wanted, size_t size) {
    return array.size() == (wanted ? size : 0);
  };
  return s.n_blocks == rows.n_blocks && sized(s.mean, needs.mean, vectors) &&
         sized(s.sub_means, needs.sub_means, vectors * static_cast<size_t>(s.subs_per_block)) &&
         sized(s.box_min, needs.box, vectors) && sized(s.box_max, needs.box, vectors) &&
         sized(s.radius, needs.radius, blocks) && sized(s.value_mean, needs.value_mean, vectors);
}

bool holds(const Proposal& p, const Rows& rows, int64_t q_heads) {
  const auto n = static_cast<size_t>(q_heads * rows.size());
  if (p.kind.size() != n || p.cause.size() != n || p.candidates.size() != q_heads * rows.size()) return false;
  if (!p.rescored.empty() && p.rescored.size() != n) return false;
  return all_lists(rows, q_heads, [&](int64_t i, const Row& row) {
    const Kind kind = p.kind[static_cast<size_t>(i)];
    const auto candidates = p.candidates[i];
    return (kind == Kind::kDense) == row.dense && (kind == Kind::kCandidates || candidates.empty()) &&
           ascends_below(candidates, row.visible_blocks);
  });
}

bool holds(const Ledger& l, const Rows& rows, int64_t q_heads) {
  const int64_t n = q_heads * rows.size();
  const auto sized = [n](const auto& array) { return static_cast<int64_t>(array.size()) == n; };
  if (l.empty || !sized(l.route) || !sized(l.near) || !sized(l.probes)) return false;
  if (!sized(l.age) || !sized(l.scored) || !sized(l.swaps)) return false;
  return all_lists(rows, q_heads, [&](int64_t i, const Row& row) {
    const auto route = l.route[i], near = l.near[i], probes = l.probes[i];
    for (const auto list : {route, near, probes})
      if (!ascends_below(list, row.visible_blocks)) return false;
    if (row.dense && static_cast<int64_t>(route.size()) != row.visible_blocks) return false;
    return disjoint(near, route) && disjoint(probes, route) && disjoint(probes, near);
  });
}

}  // namespace routerelay
