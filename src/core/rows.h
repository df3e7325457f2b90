// SPDX-License-Identifier: Apache-2.0
// The geometry of a call: sequences cut into rows of queries and blocks of keys, and what each row may see.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "routerelay/options.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay {

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// One row: up to q_block consecutive queries of one sequence. The same for every head.
struct Row {
  int64_t q_begin = 0;  // its first query token in q and out
  int32_t q_count = 0;  // 1 .. q_block
  int32_t sequence = 0;
  int64_t position = 0;        // of its first query, in the sequence
  int64_t k_begin = 0;         // the sequence's first key token in k and v
  int64_t visible_keys = 0;    // keys that its last query sees; 0 for an empty sequence
  int32_t visible_blocks = 0;  // ceil(visible_keys / k_block)
  int32_t diagonal = 0;  // blocks before it are whole for every query; from it on they may need a mask. Never
                         // past the last visible block, so that a row always has a diagonal to keep
  int64_t first_block = 0;  // of the sequence, in a Summary
  bool anew = false;   // scored in full whatever the ledger says: relay turned itself off for its sequence
  bool dense = false;  // sees every block, whatever a router would say

  // Keys that query i of the row sees: its own position included.
  int64_t keys_of(int32_t i) const {
    const int64_t causal = position + i + 1;
    return causal < visible_keys ? causal : visible_keys;
  }
};

// One sequence's run of blocks in a Summary. Block b covers keys [b * k_block, ...) of the sequence.
struct BlockRun {
  int64_t q_begin = 0;
  int64_t k_begin = 0;
  int64_t k_len = 0;
  int64_t first_block = 0;
  int64_t n_blocks = 0;
};

struct Rows {
  int q_block = 64;
  int k_block = 64;
  std::vector<Row> rows;       // by sequence, then position
  std::vector<BlockRun> runs;  // one per sequence
  int64_t n_blocks = 0;        // over all sequences

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

// Cuts checked sequences (stages.h) into rows. Marking rows dense is the Pass's business.
Rows make_rows(std::span<const Sequence> sequences, int q_block, int k_block);

}  // namespace routerelay
