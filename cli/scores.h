// SPDX-License-Identifier: Apache-2.0
// A replay's figures as records, the same names in every command.
#pragma once

#include "bench/workload/workload.h"
#include "cli/replay.h"

namespace routerelay::cli {

// Appends speedup, density, layer_density, mass, id_recall, error_rms, error_max, scored_share, screened_share,
// kept_share, time (params stage: dense, layer, summarize, relay, route, attend), summary_share and workspace. What
// no audit measured is left out.
void add_score(const Score& score, const nlohmann::json& params, std::vector<Record>& records);

// What the columns of that name say, below a table.
inline constexpr const char* kLegend =
    "density  blocks that routed rows visit, of those they see\n"
    "mass     attention that the visited blocks hold, of all; on audited rows\n"
    "ids      visited blocks, of those that routing without relay picks; on audited rows. It scores with\n"
    "         router.samples queries, relay by screen with up to router.candidate_samples: blocks that the\n"
    "         better scores swap look like lost ids\n"
    "scored   pairs of row and block that the router scored, of those that routed rows see\n"
    "speedup  dense attention's time over the layer's\n"
    "err      distance from the dense output over its length: rms of all, max of one query and head\n";

// The least speedup that a balanced layer of this density should reach: a tenth off a layer whose attention costs its
// share of the blocks at 85 % of dense efficiency and whose routing costs 6 % of dense (issue 3).
double speedup_bar(double layer_density);

// "t: model, layers 28, q [16384, 14, 64] from position 0, k [16384, 2, 64] f16".
std::string describe(const std::string& path, const Trace& trace);
nlohmann::json trace_params(const Trace& trace);

}  // namespace routerelay::cli
