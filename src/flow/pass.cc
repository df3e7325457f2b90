// SPDX-License-Identifier: Apache-2.0
// A Pass: summarize -> relay -> route -> attend, layer after layer, with one ledger between them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "core/assert.h"
#include "core/invariants.h"
#include "core/stages.h"
#include "flow/audit.h"
#include "flow/engine.h"
#include "routerelay/engine.hpp"

namespace routerelay {
namespace {

// Relaying that scores more than this share of full routing, two layers in a row, does not pay (design.md).
constexpr double kAutoOffShare = 0.8;
constexpr int kAutoOffLayers = 2;
// Layers 0 and 1 never relay: their routes resemble nobody's (systems.md 8.1).
constexpr int kFirstRelayLayer = 2;

// Runs `stage` and adds its wall clock to `elapsed_us`.
template <class Fn>
Status timed(double& elapsed_us, const Fn& stage) {
  const auto start = std::chrono::steady_clock::now();
  Status status = stage();
  elapsed_us += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  return status;
}

bool same_geometry(const Rows& a, const Rows& b) {
  return a.size() == b.size() && a.runs.size() == b.runs.size() &&
         std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), [](const Row& x, const Row& y) {
           return x.sequence == y.sequence && x.position == y.position && x.q_count == y.q_count &&
                  x.visible_keys == y.visible_keys && x.dense == y.dense;
         });
}

// Whether relaying pays is decided per sequence: batch mates must not change anybody's routes.
struct SequenceCost {
  int costly_layers = 0;  // relayed layers in a row that scored over kAutoOffShare
  bool relay_off = false;
};

}  // namespace

struct Pass::Impl {
  Impl(Engine::Impl& on, Options chosen, Args pass_args)
      : engine(on), options(std::move(chosen)), args(pass_args), needs(SummaryNeeds::of(options)) {
    report.preset = options.preset;
    report.backend = engine.stages.name;
    report.isa = name_of(engine.isa);
  }

  Engine::Impl& engine;
  Options options;
  Args args;
  SummaryNeeds needs;
  Report report;
  Ledger ledger, next;
  Rows ledger_rows;  // the geometry that the ledger speaks of
  int64_t ledger_heads = 0;
  Summary summary;
  Proposal proposal;
  Routes routes;
  MaskedRows masked;
  std::vector<float> lse;  // for the audit when the caller wants none
  int last_layer = -1;
  int routed_layers = 0;
  std::vector<SequenceCost> costs;  // [sequences] of ledger_rows

  Status layer(const LayerArgs& a);
  Status route_layer(const LayerArgs& a, Rows& rows, float scale, LayerReport& r, Exec& exec);
  Rows rows_of(const LayerArgs& a) const;
  void watch_costs(const Rows& rows, int64_t q_heads);
};

Rows Pass::Impl::rows_of(const LayerArgs& a) const {
  Sequence storage;
  Rows rows = make_rows(sequences_of(a, storage), options.q_block, options.k_block);
  const bool all = options.dense || args.final_chunk || !a.masks.empty() ||
                   (a.layer >= 0 && a.layer < options.dense_layers);
  for (Row& row : rows.rows) row.dense = all || row.visible_keys < options.dense_below;
  RR_ASSERT(holds(rows));
  return rows;
}

Status Pass::Impl::layer(const LayerArgs& a) {
  RR_TRY(check_layer(a));
  if (a.layer >= 0 && a.layer <= last_layer)
    return {Code::kInvalidArgument,
            fmt::format("layer: layer is {} after {}; layers come in order, a new pass begins anew", a.layer,
                        last_layer)};
  const float scale = a.scale > 0 ? a.scale : 1 / std::sqrt(static_cast<float>(a.q.head_dim));
  Rows rows = rows_of(a);
  Exec exec = engine.exec();
  const MaskedRows* masks = nullptr;
  if (!a.masks.empty()) {
    RR_TRY(read_masks(a.masks, rows, exec, masked));
    masks = &masked;
  }
  LayerReport r;
  r.layer = a.layer;
  r.rows = rows.size() * a.q.heads;
  r.dense = std::all_of(rows.rows.begin(), rows.rows.end(), [](const Row& row) { return row.dense; });
  r.kv_bytes_16bit = 2 * 2 * a.k.tokens * a.k.heads * a.k.head_dim;
  routes.full = r.dense;
  routes.lists.clear();
  if (!r.dense) RR_TRY(route_layer(a, rows, scale, r, exec));
  const BlockLists& visited = r.dense ? routes.lists : ledger.route;
  count_blocks(rows, a.q.heads, visited, masks, r);

  float* lse_log2 = a.lse_log2;
  const bool audits = !r.dense && options.audit_every > 0;
  if (audits && lse_log2 == nullptr) {
    lse.resize(static_cast<size_t>(a.q.heads * a.q.tokens));
    lse_log2 = lse.data();
  }
  // The ledger's route is the route: lent to attend and taken back, not copied.
  std::swap(routes.lists, ledger.route);
  const Status attended = timed(r.attend_us, [&] {
    return engine.stages.attend({a.q, a.k, a.v, rows, routes, scale, a.out, lse_log2, masks}, exec);
  });
  std::swap(routes.lists, ledger.route);
  RR_TRY(attended);
  r.workspace_bytes = engine.workspace.bytes();
  if (audits)
    RR_TRY(audit_layer({a, rows, options, summary, ledger.route, scale, lse_log2}, engine.stages, exec, r));
  last_layer = std::max(last_layer, a.layer);
  report.threads = exec.threads();
  report.layers.push_back(r);
  return {};
}

Status Pass::Impl::route_layer(const LayerArgs& a, Rows& rows, float scale, LayerReport& r, Exec& exec) {
  const bool known = a.layer >= 0;
  if (!known || a.q.heads != ledger_heads || !same_geometry(rows, ledger_rows)) {
    ledger.reset();
    costs.assign(rows.runs.size(), {});
  }
  RR_ASSERT(costs.size() == rows.runs.size());
  for (Row& row : rows.rows) row.anew = costs[static_cast<size_t>(row.sequence)].relay_off;
  const bool never = known && (a.layer < kFirstRelayLayer ||
                               std::find(options.never_relay.begin(), options.never_relay.end(), a.layer) !=
                                   options.never_relay.end());
  r.relayed =
      !ledger.empty && options.relay.mode != Relay::kOff && !never &&
      !std::all_of(rows.rows.begin(), rows.rows.end(), [](const Row& row) { return row.anew || row.dense; });
  r.auto_off = std::any_of(costs.begin(), costs.end(), [](const SequenceCost& c) { return c.relay_off; });
  const Stages& stages = engine.stages;
  RR_TRY(timed(r.summarize_us, [&]() -> Status {
    summary.resize(needs, rows.n_blocks, a.k.heads, a.k.head_dim, options.k_block);
    return needs.any() ? stages.summarize({a.k, a.v, rows, needs, summary}, exec) : Status();
  }));
  RR_ASSERT(holds(summary, needs, rows));
  r.summary_bytes = summary.bytes();
  RR_TRY(timed(r.relay_us, [&] {
    return stages.relay({a.q, a.k, rows, summary, options, ledger, scale, routed_layers, never, proposal, r},
                        exec);
  }));
  RR_ASSERT(holds(proposal, rows, a.q.heads));
  RR_TRY(timed(r.route_us, [&] {
    return stages.route({a.q, a.k, rows, summary, options, proposal, ledger, scale, a.layer, next, r}, exec);
  }));
  RR_ASSERT(holds(next, rows, a.q.heads));
  std::swap(ledger, next);
  ledger_rows = rows;
  ledger_heads = a.q.heads;
  ++routed_layers;
  if (r.relayed && options.relay.auto_off) watch_costs(rows, a.q.heads);
  return {};
}

void Pass::Impl::watch_costs(const Rows& rows, int64_t q_heads) {
  struct Pairs {
    int64_t scored = 0, all = 0;
  };
  std::vector<Pairs> pairs(costs.size());
  for (int64_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows.rows[static_cast<size_t>(i)];
    if (row.dense) continue;
    Pairs& p = pairs[static_cast<size_t>(row.sequence)];
    for (int64_t h = 0; h < q_heads; ++h) p.scored += ledger.scored[static_cast<size_t>(h * rows.size() + i)];
    p.all += q_heads * row.visible_blocks;
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    const bool costly =
        static_cast<double>(pairs[i].scored) > kAutoOffShare * static_cast<double>(pairs[i].all);
    costs[i].costly_layers = costly ? costs[i].costly_layers + 1 : 0;
    costs[i].relay_off |= costs[i].costly_layers >= kAutoOffLayers;
  }
}

Result<Pass> Pass::begin(Engine& engine, const Options& options, Args args) {
  RR_TRY(options.check());
  return Pass(std::make_unique<Impl>(*engine.impl_, options, args));
}

Pass::Pass(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pass::Pass(Pass&&) noexcept = default;
Pass& Pass::operator=(Pass&&) noexcept = default;
Pass::~Pass() = default;

Status Pass::layer(const LayerArgs& args) {
  try {
    return impl_->layer(args);
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory, "layer: memory for routes could not be had; free some or shorten the chunk"};
  }
}

const Report& Pass::report() const {
  return impl_->report;
}
std::span<const int64_t> Pass::row_offsets() const {
  const Report& r = impl_->report;
  if (r.layers.empty() || r.layers.back().dense) return {};
  return impl_->ledger.route.offsets;
}
std::span<const int32_t> Pass::picked() const {
  const Report& r = impl_->report;
  if (r.layers.empty() || r.layers.back().dense) return {};
  return impl_->ledger.route.ids;
}
std::span<const Cause> Pass::causes() const {
  const Report& r = impl_->report;
  if (r.layers.empty() || r.layers.back().dense) return {};
  return impl_->proposal.cause;
}

}  // namespace routerelay
