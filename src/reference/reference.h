// SPDX-License-Identifier: Apache-2.0
// The reference back end: the four stages in plain scalar code. It is the definition: where a fast back end and this
// one differ by more than rounding, the fast one is wrong. Every sum runs in float64 over the inputs as stored.
#pragma once

#include "core/stages.h"

namespace routerelay::reference {

// Named "reference". Any Exec will do: the ISA is ignored, threads only share out rows.
const Stages& stages();

// Fills args.summary, sized by args.needs.
Status summarize(const SummarizeArgs& args, Exec& exec);
Status relay(const RelayArgs& args, Exec& exec);
Status route(const RouteArgs& args, Exec& exec);
// Writes out and lse_log2 of every query of every row; queries of no sequence stay as they were.
Status attend(const AttendArgs& args, Exec& exec);

}  // namespace routerelay::reference
