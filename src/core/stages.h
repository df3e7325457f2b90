// SPDX-License-Identifier: Apache-2.0
// The contract of the four stages, in the order in which data moves, and the checks at their door.
#pragma once

#include <cstdint>
#include <span>

#include "core/exec.h"
#include "core/ledger.h"
#include "core/mask.h"
#include "core/routes.h"
#include "core/rows.h"
#include "core/summary.h"
#include "routerelay/engine.hpp"
#include "routerelay/options.hpp"

namespace routerelay {

// k, v -> summary.
struct SummarizeArgs {
  const Tensor& k;
  const Tensor& v;
  const Rows& rows;
  const SummaryNeeds& needs;
  Summary& summary;
};

// q, k, summary, ledger -> proposal: per row all, candidates, or keep. Writes no route.
struct RelayArgs {
  const Tensor& q;
  const Tensor& k;
  const Rows& rows;
  const Summary& summary;
  const Options& options;
  const Ledger& ledger;
  float scale = 0;         // of q.k
  int routed_layer = 0;    // how many layers this Pass routed before
  bool score_all = false;  // a never-relay layer
  Proposal& proposal;
  LayerReport& report;
};

// q, k, summary, proposal, ledger -> routes (as next.route) and the new ledger. Writes every row once.
struct RouteArgs {
  const Tensor& q;
  const Tensor& k;
  const Rows& rows;
  const Summary& summary;
  const Options& options;
  const Proposal& proposal;
  const Ledger& ledger;
  float scale = 0;
  int layer = -1;  // keys the random probes
  Ledger& next;    // must not be `ledger`
  LayerReport& report;
};

// q, k, v, routes -> out, lse_log2.
struct AttendArgs {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  const Rows& rows;
  const Routes& routes;
  float scale = 0;
  const MutableTensor& out;
  float* lse_log2 = nullptr;          // [q_heads, q.tokens] f32 or null
  const MaskedRows* masks = nullptr;  // null: rows see what their geometry shows
};

// One back end: the same four words everywhere.
struct Stages {
  const char* name;
  Status (*summarize)(const SummarizeArgs&, Exec&);
  Status (*relay)(const RelayArgs&, Exec&);
  Status (*route)(const RouteArgs&, Exec&);
  Status (*attend)(const AttendArgs&, Exec&);
};

// Shapes, dtypes, strides, pointers, overlap and sequences of a call. The stages trust what passed here.
Status check_layer(const LayerArgs& args);
// The sequences of a call: given ones, or the default single one.
std::span<const Sequence> sequences_of(const LayerArgs& args, Sequence& storage);

}  // namespace routerelay
