// SPDX-License-Identifier: Apache-2.0
// What a call of attend will do, worked out from its geometry alone: which kernel, which KV heads are packed together,
// how many query heads and rows share a pass, how much memory that takes. Pure; runs nothing.
#pragma once

#include <vector>

#include "core/rows.h"
#include "cpu/attend/kernel.h"
#include "routerelay/status.hpp"

namespace routerelay::cpu {

// One KV head of one sequence, the unit of packing.
struct Unit {
  int64_t first_row = 0;  // rows [first_row, first_row + n_rows) of Rows
  int64_t n_rows = 0;
  int64_t kv_head = 0;
  int64_t n_panels = 0;      // of 64 keys, up to the last one that any row sees
  int64_t panel_offset = 0;  // of its first panel in the workspace
};

// Units that are packed, then attended, together: their panels fit the workspace at once.
struct Batch {
  int64_t first_unit = 0;
  int64_t n_units = 0;
};

struct Plan {
  const Kernel* kernel = nullptr;
  std::vector<Unit> units;
  std::vector<Batch> batches;
  int64_t max_panels = 0;  // of any batch: at most one whole KV head per thread
  int heads_per_item = 1;  // query heads and consecutive rows that share a pass when they see every block
  int rows_per_item = 1;

  int64_t shared_bytes() const;
};

struct PlanArgs {
  const Rows& rows;
  Isa isa = Isa::kScalar;
  DType kv_dtype = DType::kF32;
  int64_t head_dim = 0;
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int threads = 1;
};

// The ISA whose kernel runs. Keys and values keep their bits: f32 has f32 arithmetic on every ISA, f16 too unless AMX,
// where a product costs little, multiplies it in two parts of bf16 (docs/decision/2026-11-29-f16-precision.md).
Isa isa_for(Isa isa, DType kv_dtype);
// kUnsupported names head_dim, its value and what the ISA has.
Status supports(Isa isa, int64_t head_dim);
// supports() must hold.
Plan choose(const PlanArgs& args);
// What the call takes beyond q, k, v, out: packed heads and every thread's scratch.
int64_t workspace_bytes(const PlanArgs& args);

}  // namespace routerelay::cpu
