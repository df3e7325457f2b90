// SPDX-License-Identifier: Apache-2.0
// q, k, summary, proposal, ledger -> the next ledger and in it the routes: the rules of core/policy over the
// reference's scores.
#include "core/policy/route_rows.h"
#include "reference/reference.h"
#include "reference/scorer.h"

namespace routerelay::reference {

Status route(const RouteArgs& a, Exec& exec) {
  Scorer costly(a.q, a.k, a.rows, a.summary, a.options.router, a.scale);
  return route_rows(a, costly, exec);
}

}  // namespace routerelay::reference
