// SPDX-License-Identifier: Apache-2.0
// Builds the scorer that the options name and lets the shared rules use it.
#include "core/policy/route_rows.h"
#include "cpu/route/route.h"
#include "cpu/route/scorer.h"

namespace routerelay::cpu {

Status route(const RouteArgs& a, Exec& exec) {
  const auto costly = make_scorer({a.q, a.k, a.rows, a.summary, a.options.router, a.scale}, exec.isa);
  return route_rows(a, *costly, exec);
}

}  // namespace routerelay::cpu
