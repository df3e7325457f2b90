// SPDX-License-Identifier: Apache-2.0
// The relay stage's rules: per row, does the earlier route still hold, and if not, what is left to score?
#pragma once

#include "core/policy/scorer.h"
#include "core/stages.h"

namespace routerelay {

// `costly` is the router of the options; `cheap` is sub 8x8, asked only by screen. Fills args.proposal and
// adds to args.report. Fails only with kAborted, kOutOfMemory or what a scorer's begin_heads says.
Status relay_rows(const RelayArgs& args, RowScorer& costly, RowScorer& cheap, Exec& exec);

}  // namespace routerelay
