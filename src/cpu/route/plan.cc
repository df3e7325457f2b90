// SPDX-License-Identifier: Apache-2.0
#include "cpu/route/plan.h"

#include <algorithm>

#include "cpu/isa/tile.h"

namespace routerelay::cpu {
namespace {

// Vectors that a pass over the packed keys should serve: those come from L3 or beyond, at some 10 to 20 GB/s per core.
// 24 are four of the tiles' six rows, and their products take three times as long as the read of an f32 panel; with
// M = 8 the score of a whole layer took 1.6 times as long on Emerald Rapids. AMX computes ten times as fast, and of
// candidates only a fifth of the vectors want a panel.
constexpr int kVectorsPerPass = 24, kVectorsPerAmxPass = kMaxVectors;
constexpr int kMaxRowsAtOnce = 64;
constexpr int kMaxQueries = 128;  // of a row

}  // namespace

RouterPlan plan_router(const RouterPlanArgs& a, const SoftmaxKernel& kernel) {
  RouterPlan p;
  int candidates = 0;  // vectors that a query head's candidates in a row may have
  switch (a.router.kind) {
    case Router::kSub:
      // The summary's own group size: screen's cheap router takes what is there.
      p.keys_per_column = a.rows.k_block / std::max(1, a.subs_per_block);
      p.vectors_per_row = static_cast<int>(ceil_div(a.rows.q_block, a.router.sub_q));
      break;
    case Router::kAntidiag:
      p.keys_per_column = p.pieces = a.router.stride;
      p.vectors_per_row = static_cast<int>(ceil_div(a.rows.q_block, a.router.stride));
      break;
    default:
      p.vectors_per_row = a.router.samples;
      candidates = a.router.candidate_samples;
  }
  const int D = static_cast<int>(a.head_dim);
  PanelShape& shape = p.shape;
  shape.columns_per_block = a.rows.k_block / p.keys_per_column;
  shape.blocks_per_slot = std::max(1, kPanel / shape.columns_per_block);
  shape.panels_per_slot = std::max(1, shape.columns_per_block / kPanel);
  // Pieces are padded one by one: each is packed like a head of its own.
  shape.length = p.pieces == 1 ? D : p.pieces * kernel.pitch(D);
  p.vector_bytes = int64_t{kernel.pitch(shape.length)} * kernel.elem_bytes;
  shape.panel_bytes = kPanel * p.vector_bytes;
  const int vectors = a.group * p.vectors_per_row;
  p.rows_at_once =
      std::clamp((kernel.row_step > 1 ? kVectorsPerAmxPass : kVectorsPerPass) / vectors, 1, kMaxRowsAtOnce);
  p.max_vectors = std::max(p.vectors_per_row,
                           std::min(std::max(vectors * p.rows_at_once, a.group * candidates), kMaxVectors));
  // Every sequence begins a slot. A vector's sums follow its shift slot by slot: cut elsewhere, a score would have
  // other bits, and batch mates must not change any.
  for (const BlockRun& run : a.rows.runs) {
    p.first_slot.push_back(p.n_slots);
    p.n_slots += ceil_div(run.n_blocks, shape.blocks_per_slot);
  }
  // One line more than full ones: at a pitch of 2 KiB all vectors' sums would share a few sets of the L1 cache.
  p.sum_pitch = round_up(p.n_slots * shape.blocks_per_slot, 16) + 16;
  return p;
}

ThreadLayout ThreadLayout::of(const RouterPlan& p, const SoftmaxKernel& kernel, int64_t head_dim) {
  ThreadLayout l;
  const auto take = [&l](int64_t bytes) {
    const int64_t at = l.bytes;
    l.bytes += round_up(bytes, 64);
    return at;
  };
  const int64_t V = p.max_vectors, padded = V + kernel.row_step, f32 = sizeof(float);
  l.vectors = take(padded * p.vector_bytes);
  l.s = take((kMaxBatch + kernel.row_step) * p.shape.panels_per_slot * kPanel * f32);
  l.gathered = take((kMaxBatch + kernel.row_step) * p.vector_bytes);
  l.sums = take(V * p.sum_pitch * f32);
  l.shifts = take(V * f32);
  l.takers = take(V * static_cast<int64_t>(sizeof(SoftmaxTaker)));
  l.progress = take(V * static_cast<int64_t>(sizeof(SoftmaxProgress)));
  l.limits = take(V * static_cast<int64_t>(sizeof(int64_t)));
  l.patch = take(V * f32);
  // A panel's worth of tokens in their own type while packing; a query group in f32 and a row's means while scoring.
  l.tokens = take((kMaxQueries + p.vectors_per_row) * head_dim * f32);
  return l;
}

}  // namespace routerelay::cpu
