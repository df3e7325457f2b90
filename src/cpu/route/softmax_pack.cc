// SPDX-License-Identifier: Apache-2.0
// What stands for the keys of a KV head -> panels: the keys themselves (sampled), the summary's means (sub), or groups
// of keys laid end to end (antidiag).
#include <algorithm>
#include <cstring>

#include "cpu/isa/tile.h"
#include "cpu/route/softmax_scorer.h"

namespace routerelay::cpu {

// Head_dim elements of `piece` of a column of the sequence's `block`; null when there is no such token.
const std::byte* SoftmaxScorer::column_token(int kv_head, const BlockRun& run, int64_t block, int column,
                                             int piece) const {
  if (block >= run.n_blocks) return nullptr;
  if (a_.router.kind == Router::kSub) {
    const int64_t at = kv_head * a_.summary.n_blocks + run.first_block + block;
    return reinterpret_cast<const std::byte*>(
        a_.summary.sub_means.data() + (at * plan_.shape.columns_per_block + column) * a_.summary.head_dim);
  }
  const int64_t token = block * a_.rows.k_block + column * plan_.keys_per_column + piece;
  return token < run.k_len ? a_.k.at(run.k_begin + token, kv_head) : nullptr;
}

void SoftmaxScorer::pack_slot(int kv_head, int64_t slot, std::byte* tokens, std::byte* out) const {
  const PanelShape& shape = plan_.shape;
  const bool means = a_.router.kind == Router::kSub;
  const DType dtype = means ? DType::kBF16 : a_.k.dtype;
  const int D = static_cast<int>(a_.k.head_dim), B = shape.blocks_per_slot;
  // The last sequence that begins no later: one without keys begins where the next one does.
  const auto after = std::upper_bound(plan_.first_slot.begin(), plan_.first_slot.end(), slot);
  const auto sequence = static_cast<size_t>(after - plan_.first_slot.begin()) - 1;
  const BlockRun& run = a_.rows.runs[sequence];
  const int64_t first_block = (slot - plan_.first_slot[sequence]) * B;
  for (int panel = 0; panel < shape.panels_per_slot; ++panel)
    for (int piece = 0; piece < plan_.pieces; ++piece, out += shape.panel_bytes / plan_.pieces) {
      const auto column = [&](int x) {
        return column_token(kv_head, run, first_block + x % B, panel * kPanel / B + x / B, piece);
      };
      if (B == 1 && plan_.pieces == 1) {  // as they lie in memory; the missing ones are the last
        int n = kPanel;
        while (n > 0 && column(n - 1) == nullptr) --n;
        kernel_.pack_keys(column(0), dtype, means ? D : a_.k.token_stride, n, D, out);
        continue;
      }
      // Interleaved or strided columns are gathered first, a copy within L1.
      const auto bytes = static_cast<size_t>(bytes_of(dtype, D));
      for (int x = 0; x < kPanel; ++x) {
        std::byte* to = tokens + static_cast<size_t>(x) * bytes;
        const std::byte* from = column(x);
        from != nullptr ? std::memcpy(to, from, bytes) : std::memset(to, 0, bytes);
      }
      kernel_.pack_keys(tokens, dtype, D, kPanel, D, out);
    }
}

}  // namespace routerelay::cpu
