// SPDX-License-Identifier: Apache-2.0
// What holds of the data between two stages, whatever the back end: predicates for RR_ASSERT and for tests. Each covers
// all that the next stage trusts.
#pragma once

#include <cstdint>

#include "core/ledger.h"
#include "core/rows.h"
#include "core/summary.h"

namespace routerelay {

// Rows tile their sequences in order, and none sees more blocks than its sequence has.
bool holds(const Rows& rows);
// Every array that was asked for has its shape, every other one is empty.
bool holds(const Summary& summary, const SummaryNeeds& needs, const Rows& rows);
// One decision a row, dense where the row is; candidates where they are announced, and visible to the row.
bool holds(const Proposal& proposal, const Rows& rows, int64_t q_heads);
// One entry a row: a route that the row sees, challengers beside it, and whole where the row is dense.
bool holds(const Ledger& ledger, const Rows& rows, int64_t q_heads);

}  // namespace routerelay
