// SPDX-License-Identifier: Apache-2.0
// The route stage's rules: score what relay left, select, and write every row's route and ledger entry once.
#pragma once

#include "core/policy/scorer.h"
#include "core/stages.h"

namespace routerelay {

// Fills args.next and adds to args.report. Fails only with kAborted, kOutOfMemory or what begin_heads says.
Status route_rows(const RouteArgs& args, RowScorer& costly, Exec& exec);

}  // namespace routerelay
