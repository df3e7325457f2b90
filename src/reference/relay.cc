// SPDX-License-Identifier: Apache-2.0
// q, k, summary, ledger -> proposal: the rules of core/policy over the reference's scores.
#include "core/policy/relay_rows.h"
#include "reference/reference.h"
#include "reference/scorer.h"

namespace routerelay::reference {

Status relay(const RelayArgs& a, Exec& exec) {
  Scorer costly(a.q, a.k, a.rows, a.summary, a.options.router, a.scale);
  Scorer cheap(a.q, a.k, a.rows, a.summary, {.kind = Router::kSub, .sub_q = 8, .sub_k = 8}, a.scale);
  return relay_rows(a, costly, cheap, exec);
}

}  // namespace routerelay::reference
