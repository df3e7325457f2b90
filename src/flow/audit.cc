// SPDX-License-Identifier: Apache-2.0
#include "flow/audit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/assert.h"

namespace routerelay {
namespace {

// The audited rows as a call of their own: their queries copied side by side, keys untouched.
struct Sample {
  Rows rows;                       // q_begin points into `q`
  std::vector<int64_t> row_idx;    // in the layer's rows
  std::vector<std::byte> storage;  // [n, q_block, q_heads, head_dim] in q's dtype
  Tensor q;
};

Sample take_sample(const AuditArgs& a) {
  Sample s;
  s.rows.q_block = a.rows.q_block;
  s.rows.k_block = a.rows.k_block;
  s.rows.runs = a.rows.runs;
  s.rows.n_blocks = a.rows.n_blocks;
  const Tensor& q = a.layer.q;
  for (int64_t i = 0; i < a.rows.size(); ++i) {
    Row row = a.rows.rows[static_cast<size_t>(i)];
    // By position, so that chunks audit the rows that the whole prompt would.
    const int64_t turn = row.position / a.rows.q_block;
    if (row.dense || turn % a.options.audit_every != a.options.audit_every - 1) continue;
    row.q_begin = static_cast<int64_t>(s.rows.rows.size()) * a.rows.q_block;
    s.rows.rows.push_back(row);
    s.row_idx.push_back(i);
  }
  const int64_t tokens = s.rows.size() * a.rows.q_block, head_bytes = bytes_of(q.dtype, q.head_dim);
  s.storage.resize(static_cast<size_t>(tokens * q.heads * head_bytes));
  s.q = contiguous(s.storage.data(), q.dtype, tokens, q.heads, q.head_dim);
  for (size_t i = 0; i < s.row_idx.size(); ++i) {
    const Row& from = a.rows.rows[static_cast<size_t>(s.row_idx[i])];
    for (int64_t t = 0; t < from.q_count; ++t)
      for (int64_t h = 0; h < q.heads; ++h)
        std::memcpy(s.storage.data() + ((s.rows.rows[i].q_begin + t) * q.heads + h) * head_bytes,
                    q.at(from.q_begin + t, h), static_cast<size_t>(head_bytes));
  }
  return s;
}

double shared_ids(std::span<const int32_t> used, std::span<const int32_t> wanted) {
  if (wanted.empty()) return 1;
  int64_t hits = 0;
  for (int32_t id : wanted) hits += std::binary_search(used.begin(), used.end(), id);
  return static_cast<double>(hits) / static_cast<double>(wanted.size());
}

}  // namespace

void count_blocks(const Rows& rows, int64_t q_heads, const BlockLists& visited, const MaskedRows* masks,
                  LayerReport& report) {
  for (int64_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows.rows[static_cast<size_t>(i)];
    const auto shown = masks == nullptr ? row.visible_blocks : static_cast<int64_t>(masks->shown[i].size());
    const int64_t visible = shown * q_heads;
    int64_t seen = visible;
    if (visited.size() > 0) {
      seen = 0;
      for (int64_t h = 0; h < q_heads; ++h) seen += static_cast<int64_t>(visited[h * rows.size() + i].size());
    }
    report.visible_blocks += visible;
    RR_ASSERT(seen <= visible);
    report.visited_blocks += seen;
    if (row.dense) continue;
    report.routed_rows += q_heads;
    report.routed_visible_blocks += visible;
    report.routed_visited_blocks += seen;
  }
}

Status audit_layer(const AuditArgs& a, const Stages& stages, Exec& exec, LayerReport& report) {
  const Sample sample = take_sample(a);
  if (sample.row_idx.empty()) return {};
  const int64_t heads = sample.q.heads;

  Options full = a.options;
  full.relay.mode = Relay::kOff;
  const Ledger none;
  Ledger wanted;
  Proposal proposal;
  LayerReport discarded;
  RR_TRY(stages.relay(
      {sample.q, a.layer.k, sample.rows, a.summary, full, none, a.scale, 0, true, proposal, discarded},
      exec));
  RR_TRY(stages.route({sample.q, a.layer.k, sample.rows, a.summary, full, proposal, none, a.scale,
                       a.layer.layer, wanted, discarded},
                      exec));

  RR_ASSERT(a.lse_log2 != nullptr && wanted.route.size() == heads * sample.rows.size());
  std::vector<float> out(static_cast<size_t>(sample.q.tokens * heads * sample.q.head_dim));
  std::vector<float> lse(static_cast<size_t>(heads * sample.q.tokens));
  const MutableTensor out_view =
      contiguous(static_cast<void*>(out.data()), DType::kF32, sample.q.tokens, heads, sample.q.head_dim);
  const Routes everything{.full = true, .lists = {}};
  RR_TRY(stages.attend(
      {sample.q, a.layer.k, a.layer.v, sample.rows, everything, a.scale, out_view, lse.data()}, exec));

  for (size_t i = 0; i < sample.row_idx.size(); ++i) {
    const Row& row = a.rows.rows[static_cast<size_t>(sample.row_idx[i])];
    for (int64_t h = 0; h < heads; ++h) {
      double mass = 0;
      for (int64_t t = 0; t < row.q_count; ++t) {
        const float seen = a.lse_log2[h * a.layer.q.tokens + row.q_begin + t];
        const float all = lse[static_cast<size_t>(h * sample.q.tokens + sample.rows.rows[i].q_begin + t)];
        // Without a visible key both are -inf, and nothing was missed.
        mass += seen == all ? 1 : std::exp2(static_cast<double>(seen) - all);
      }
      ++report.audited_rows;
      report.audited_mass_recall += mass / row.q_count;
      report.audited_id_recall += shared_ids(a.visited[h * a.rows.size() + sample.row_idx[i]],
                                             wanted.route[h * sample.rows.size() + static_cast<int64_t>(i)]);
    }
  }
  return {};
}

}  // namespace routerelay
