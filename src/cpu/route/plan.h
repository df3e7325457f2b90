// SPDX-License-Identifier: Apache-2.0
// What a softmax router will do, worked out from shapes and options alone: how keys lie in panels, how many vectors a
// row has, how much memory that takes. Pure; runs nothing.
#pragma once

#include <vector>

#include "core/rows.h"
#include "cpu/route/kernel.h"
#include "routerelay/options.hpp"

namespace routerelay::cpu {

struct RouterPlanArgs {
  RouterOptions router;
  const Rows& rows;
  int64_t head_dim = 0;
  int subs_per_block = 0;  // of the Summary; used by sub
  int group = 1;           // query heads per KV head
};

struct RouterPlan {
  PanelShape shape;
  int keys_per_column = 1;  // tokens that a column stands for
  int pieces = 1;           // head_dims that are laid end to end in a vector: antidiag's stride, else 1
  int vectors_per_row = 1;  // at most, of one query head whose request names no number of its own
  int rows_at_once = 1;     // rows that share a pass over the keys
  int max_vectors = 1;      // of one job
  int64_t n_slots = 0;
  std::vector<int64_t> first_slot;  // of every sequence
  int64_t vector_bytes = 0;         // of one packed vector
  int64_t sum_pitch = 0;            // of SoftmaxScratch

  // Packed keys of one KV head: never more than its keys in the tile's element type, each sequence's rounded up to
  // panels.
  int64_t head_bytes() const { return n_slots * shape.panels_per_slot * shape.panel_bytes; }
};

RouterPlan plan_router(const RouterPlanArgs& args, const SoftmaxKernel& kernel);

// Where a thread's buffers begin in its scratch, in bytes; each starts a cache line.
struct ThreadLayout {
  int64_t vectors = 0, s = 0, gathered = 0, sums = 0, shifts = 0, takers = 0, progress = 0, limits = 0,
          patch = 0, tokens = 0, bytes = 0;

  static ThreadLayout of(const RouterPlan& plan, const SoftmaxKernel& kernel, int64_t head_dim);
};

}  // namespace routerelay::cpu
