// SPDX-License-Identifier: Apache-2.0
// What a layer visited, counted, and on sampled rows held against full routing and full attention.
#pragma once

#include "core/stages.h"

namespace routerelay {

// Adds rows and (row, block) pairs, visible and visited, to the report. `visited` is empty for a dense layer. Of blocks
// under masks only the shown ones are visible.
void count_blocks(const Rows& rows, int64_t q_heads, const BlockLists& visited, const MaskedRows* masks,
                  LayerReport& report);

struct AuditArgs {
  const LayerArgs& layer;
  const Rows& rows;
  const Options& options;
  const Summary& summary;
  const BlockLists& visited;  // what attend used
  float scale = 0;
  const float* lse_log2 = nullptr;  // [q_heads, q_tokens] of the visited blocks
};

// Every options.audit_every-th routed row, scored and attended in full: which of the router's own picks were
// missed (ids) and which share of the true attention mass was visited (mass = 2^(lse visited - lse full)).
Status audit_layer(const AuditArgs& args, const Stages& stages, Exec& exec, LayerReport& report);

}  // namespace routerelay
