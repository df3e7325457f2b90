// SPDX-License-Identifier: Apache-2.0
// Builds the costly scorer and the cheap one of screen, and lets the shared rules use them.
#include "core/policy/relay_rows.h"
#include "cpu/relay/relay.h"
#include "cpu/route/scorer.h"

namespace routerelay::cpu {

Status relay(const RelayArgs& a, Exec& exec) {
  const auto costly = make_scorer({a.q, a.k, a.rows, a.summary, a.options.router, a.scale}, exec.isa);
  const RouterOptions sub{.kind = Router::kSub, .sub_q = 8, .sub_k = 8};
  const auto cheap = make_scorer({a.q, a.k, a.rows, a.summary, sub, a.scale}, exec.isa);
  return relay_rows(a, *costly, *cheap, exec);
}

}  // namespace routerelay::cpu
