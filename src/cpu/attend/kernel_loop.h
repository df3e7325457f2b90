// SPDX-License-Identifier: Apache-2.0
// The attend loop, once for every ISA: for each visited panel of 64 keys, scores -> mask -> online softmax ->
// accumulate, few rows at a time. Included by kernel_<isa>.cc only; anonymous for the reason that tile.h gives.
#pragma once

#include <cstring>

#include "cpu/attend/kernel.h"
#include "cpu/isa/tile.h"

namespace routerelay::cpu {
namespace {

// One work item's buffers, carved out of the thread's scratch.
template <TileOps Tile, int D>
struct Scratch {
  using Elem = typename Tile::Elem;
  static constexpr int64_t kRows = kMaxItemRows;
  // The most rows that a step touches past the item's last one: AMX computes 16 at a time.
  static constexpr int64_t kPadded = kRows + Tile::kRowStep - 1;

  alignas(64) Elem rows[kPadded * Tile::pitch(D)];
  alignas(64) float acc[kPadded * D];
  alignas(64) float s[Tile::rows_scored(D) * kPanel];
  alignas(64) Elem p[Tile::kRowsAtOnce * kPanel];
  alignas(64) float max[kRows];
  alignas(64) float sum[kRows * Tile::kLanes];
  // The careful path's copies: a value panel with hidden keys cleared, and one row in a group of kRowStep.
  alignas(64) Elem values[Tile::value_size(D)];
  alignas(64) Elem one_p[Tile::kRowStep * kPanel];
  alignas(64) float one_acc[Tile::kRowStep * D];
};

inline int least(int a, int b) {
  return a < b ? a : b;
}

// Keys of the panel at `first` that query i sees, 0 .. 64.
inline int visible_in(const RowJob& job, int64_t first, int i) {
  const int64_t causal = job.position + i + 1;
  const int64_t seen = (causal < job.visible_keys ? causal : job.visible_keys) - first;
  return seen < 0 ? 0 : seen > kPanel ? kPanel : static_cast<int>(seen);
}

// Whether no row of [begin, end) sees a key of the panel at `first`; a guess, false where several heads meet.
inline bool hidden(const RowJob& job, int64_t first, int begin, int end) {
  const int last = begin % job.q_count + end - 1 - begin;
  return last < job.q_count && visible_in(job, first, last) == 0;
}

inline void mask(const RowJob& job, int64_t first, int begin, int end, float* s) {
  for (int r = begin; r < end; ++r, s += kPanel) {
    const int i = r % job.q_count, visible = visible_in(job, first, i);
    if (job.mask != nullptr) {
      const uint16_t* values = job.mask + i * job.mask_stride + first;
      for (int j = 0; j < visible; ++j) s[j] = shows(values[j]) ? s[j] : -__builtin_inff();
    }
    for (int j = visible; j < kPanel; ++j) s[j] = -__builtin_inff();
  }
}

// acc += p * values where the panel holds NaN or inf that some queries must not see: 0 * NaN would reach them. Each
// query gets a copy of the panel without what is hidden from it.
template <TileOps Tile, int D>
[[gnu::noinline]] void accumulate_carefully(const RowJob& job, int64_t first, int row0, int n,
                                            const typename Tile::Elem* values, Scratch<Tile, D>& t) {
  using Elem = typename Tile::Elem;
  for (int r = 0; r < n; ++r) {
    const int i = (row0 + r) % job.q_count, visible = visible_in(job, first, i);
    const uint16_t* mask = job.mask == nullptr ? nullptr : job.mask + i * job.mask_stride + first;
    std::memcpy(t.values, values, sizeof(t.values));
    for (int j = 0; j < kPanel; ++j)
      if (j >= visible || (mask != nullptr && !shows(mask[j]))) Tile::clear_value(t.values, D, j);
    float* acc = t.acc + (row0 + r) * D;
    std::memcpy(t.one_p, t.p + r * kPanel, kPanel * sizeof(Elem));
    std::memcpy(t.one_acc, acc, D * sizeof(float));
    Tile::accumulate(t.one_p, 1, t.values, D, t.one_acc);
    std::memcpy(acc, t.one_acc, D * sizeof(float));
  }
}

// What is to be fetched of `panel` while n_rows rows of another one are computed.
template <TileOps Tile, int D>
Ahead ahead_of(const RowJob& job, int64_t panel, int n_rows) {
  constexpr int64_t kKeyBytes = kPanel * Tile::pitch(D) * sizeof(typename Tile::Elem),
                    kValueBytes = Tile::value_size(D) * sizeof(typename Tile::Elem);
  constexpr int kLines = (kKeyBytes + kValueBytes) / 64, kMost = 16;  // of a row: as many as can be under way
  const int per_row = (kLines + n_rows - 1) / n_rows;
  return {job.keys + panel * kKeyBytes, kKeyBytes / 64, job.values + panel * kValueBytes, kValueBytes / 64,
          per_row < kMost ? per_row : kMost};
}

// `next` is the panel that follows in the route, or the same one at its end.
template <TileOps Tile, int D>
void attend_panel(const RowJob& job, int64_t panel, int64_t next, bool masked, Scratch<Tile, D>& t) {
  using Elem = typename Tile::Elem;
  const int64_t first = panel * kPanel;
  const Elem* keys = reinterpret_cast<const Elem*>(job.keys) + panel * kPanel * Tile::pitch(D);
  const Elem* values = reinterpret_cast<const Elem*>(job.values) + panel * Tile::value_size(D);
  const int n_rows = job.q_count * job.n_heads;
  Ahead ahead;
  if (next != panel) ahead = ahead_of<Tile, D>(job, next, n_rows);
  for (int begin = 0; begin < n_rows; begin += Tile::rows_scored(D)) {
    const int end = begin + least(n_rows - begin, Tile::rows_scored(D));
    if (masked && hidden(job, first, begin, end)) continue;
    Tile::scores(t.rows + begin * Tile::pitch(D), end - begin, keys, D, t.s, kPanel, &ahead);
    if (masked) mask(job, first, begin, end, t.s);
    for (int r = begin; r < end; r += Tile::kRowsAtOnce) {
      const int n = least(end - r, Tile::kRowsAtOnce);
      Tile::softmax(t.s + (r - begin) * kPanel, n, job.factor, t.p, t.max + r, t.sum + r * Tile::kLanes,
                    t.acc + r * D, D, &ahead);
      if (masked && !job.finite[panel])
        accumulate_carefully<Tile, D>(job, first, r, n, values, t);
      else
        Tile::accumulate(t.p, n, values, D, t.acc + r * D, &ahead);
    }
  }
}

// Empty sums, and the first panel on its way.
template <TileOps Tile, int D>
void begin_row(const RowJob& job, int64_t panel, Scratch<Tile, D>& t) {
  const int n_rows = job.q_count * job.n_heads;
  Ahead ahead = ahead_of<Tile, D>(job, panel, n_rows);
  for (int r = 0; r < n_rows; ++r) {
    if (const std::byte* lines = Ahead::take(&ahead, ahead.per_row))
      for (int x = 0; x < ahead.per_row; ++x) __builtin_prefetch(lines + x * 64, 0, 2);
    std::memset(t.acc + r * D, 0, D * sizeof(float));
    t.max[r] = -__builtin_inff();
  }
  std::memset(t.sum, 0, static_cast<size_t>(n_rows * Tile::kLanes) * sizeof(float));
  for (int h = 0; h < job.n_heads; ++h)
    Tile::pack_rows(job.q + h * bytes_of(job.q_dtype, job.q_head_stride), job.q_dtype, job.q_stride,
                    job.q_count, D, 1.0f, t.rows + h * job.q_count * Tile::pitch(D));
}

template <TileOps Tile, int D>
void attend_row(const RowJob& job, std::byte* scratch) {
  auto& t = *reinterpret_cast<Scratch<Tile, D>*>(scratch);
  const auto block_at = [&](int64_t i) { return job.blocks == nullptr ? i : int64_t{job.blocks[i]}; };
  begin_row<Tile, D>(job, job.n_blocks > 0 ? block_at(0) * job.panels_per_block : 0, t);
  {
    [[maybe_unused]] const typename Tile::Session session;
    for (int64_t i = 0; i < job.n_blocks; ++i) {
      const int64_t block = block_at(i), end = (block + 1) * job.panels_per_block;
      const bool masked =
          block >= job.diagonal || (job.sights != nullptr && job.sights[block] != Sight::kAll);
      for (int64_t panel = block * job.panels_per_block; panel < end; ++panel) {
        if (panel * kPanel >= job.visible_keys) break;
        int64_t next = panel;
        if (panel + 1 < end)
          ++next;
        else if (i + 1 < job.n_blocks)
          next = block_at(i + 1) * job.panels_per_block;
        attend_panel<Tile, D>(job, panel, next, masked, t);
      }
    }
  }

  for (int h = 0; h < job.n_heads; ++h)
    for (int i = 0; i < job.q_count; ++i) {
      const int r = h * job.q_count + i;
      std::byte* out = job.out + bytes_of(job.out_dtype, h * job.out_head_stride + i * job.out_stride);
      float* lse = job.lse == nullptr ? nullptr : job.lse + h * job.lse_head_stride + i;
      Tile::finish(t.acc + r * D, t.max[r] * job.factor, t.sum + r * Tile::kLanes, D, out, job.out_dtype,
                   lse);
    }
}

template <TileOps Tile, int D>
void pack_panel(const PackJob& job) {
  using Elem = typename Tile::Elem;
  Tile::pack_keys(job.k, job.dtype, job.k_stride, job.n_keys, D, reinterpret_cast<Elem*>(job.keys));
  *job.finite =
      Tile::pack_values(job.v, job.dtype, job.v_stride, job.n_keys, D, reinterpret_cast<Elem*>(job.values));
}

template <TileOps Tile, int D>
constexpr Kernel kKernel = {
    .key_bytes = kPanel* Tile::pitch(D) * static_cast<int64_t>(sizeof(typename Tile::Elem)),
    .value_bytes = Tile::value_size(D) * static_cast<int64_t>(sizeof(typename Tile::Elem)),
    .scratch_bytes = sizeof(Scratch<Tile, D>),
    .pack = pack_panel<Tile, D>,
    .attend = attend_row<Tile, D>};

// The lines of configs.def for one ISA.
template <TileOps Tile, Isa kIsa>
const Kernel* find_kernel(int64_t head_dim) {
#define RR_ATTEND(isa, D)                        \
  if constexpr (Isa::isa == kIsa) {              \
    if (head_dim == D) return &kKernel<Tile, D>; \
  }
#include "cpu/attend/configs.def"
#undef RR_ATTEND
  return nullptr;
}

}  // namespace
}  // namespace routerelay::cpu
