// SPDX-License-Identifier: Apache-2.0
#include "core/rows.h"

#include <algorithm>

#include "core/assert.h"

namespace routerelay {

Rows make_rows(std::span<const Sequence> sequences, int q_block, int k_block) {
  Rows out;
  out.q_block = q_block;
  out.k_block = k_block;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& seq = sequences[s];
    const BlockRun run{seq.q_begin, seq.k_begin, seq.k_len, out.n_blocks, ceil_div(seq.k_len, k_block)};
    out.runs.push_back(run);
    out.n_blocks += run.n_blocks;
    for (int64_t i = 0; i < seq.q_len; i += q_block) {
      Row row;
      row.q_begin = seq.q_begin + i;
      row.q_count = static_cast<int32_t>(std::min<int64_t>(q_block, seq.q_len - i));
      row.sequence = static_cast<int32_t>(s);
      row.position = seq.q_offset + i;
      row.k_begin = seq.k_begin;
      row.visible_keys = std::min(seq.k_len, row.position + row.q_count);
      row.visible_blocks = static_cast<int32_t>(ceil_div(row.visible_keys, k_block));
      // Blocks whose last key the first query sees are whole; the last visible one counts as diagonal even
      // then.
      const int64_t whole = std::min(row.position + 1, row.visible_keys) / k_block;
      row.diagonal = static_cast<int32_t>(std::clamp<int64_t>(row.visible_blocks - 1, 0, whole));
      row.first_block = run.first_block;
      RR_ASSERT(row.visible_blocks <= run.n_blocks && row.diagonal <= std::max(0, row.visible_blocks - 1));
      out.rows.push_back(row);
    }
  }
  return out;
}

}  // namespace routerelay
