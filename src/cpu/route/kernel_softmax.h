// SPDX-License-Identifier: Apache-2.0
// The loop of sub, sampled and antidiag, once for every ISA: slots of keys in ascending order, each scored for all
// vectors that want it while its panel is in cache, a batch of them at a time, and at once summed per block. Nothing is
// as long as the keys but the sums, one number per block. Included by kernel_<isa>.cc only; anonymous for the reason
// that isa/tile.h gives.
#pragma once

#include "cpu/isa/tile.h"
#include "cpu/route/block_sums.h"
#include "cpu/route/kernel.h"

namespace routerelay::cpu {
namespace {

constexpr int64_t kNoSlot = INT64_MAX;

template <TileOps Tile, class Sums>
class SoftmaxLoop {
 public:
  explicit SoftmaxLoop(const SoftmaxJob& job)
      : job_(job),
        t_(job.scratch),
        block_bits_(__builtin_ctz(static_cast<unsigned>(job.shape.blocks_per_slot))),
        pitch_(Tile::pitch(job.shape.length)) {}

  void run() {
    int64_t slot = kNoSlot;
    for (int i = 0; i < job_.n_requests; ++i) {
      t_.progress[i] = {.next = slot_of(job_.requests[i], 0)};
      slot = t_.progress[i].next < slot ? t_.progress[i].next : slot;
    }
    for (int v = 0; v < job_.n_vectors; ++v) t_.shifts[v] = -__builtin_inff();
    while (slot != kNoSlot) slot = visit(slot);
    for (int i = 0; i < job_.n_requests; ++i) finish(i);
  }

 private:
  using Elem = typename Tile::Elem;
  // 16 on AMX: a longer pause between products lets the tile unit doze (docs/kernel/cpu-route.md).
  static constexpr int kBatch = Tile::kRowStep > 1 ? 16 : kMaxBatch;

  int64_t slot_of(const SoftmaxRequest& r, int cursor) const {
    return cursor < r.n_ids ? (r.first_block + r.ids[cursor]) >> block_bits_ : kNoSlot;
  }

  // Scores `slot` for everyone who wants it; the lowest slot that anyone wants after it.
  int64_t visit(int64_t slot) {
    int64_t following = kNoSlot;
    int n = 0;
    for (int i = 0; i < job_.n_requests; ++i) {
      if (t_.progress[i].next == slot) n = take(i, slot, n);
      following = t_.progress[i].next < following ? t_.progress[i].next : following;
    }
    expect(following, n);
    for (int first = 0; first < n; first += kBatch)
      score(slot, t_.takers + first, n - first < kBatch ? n - first : kBatch);
    return following;
  }

  // Moves request i on past the slot and adds its vectors to the n takers.
  int take(int i, int64_t slot, int n) {
    const SoftmaxRequest& r = job_.requests[i];
    SoftmaxProgress& p = t_.progress[i];
    const int64_t first = (slot << block_bits_) - r.first_block;  // the slot's first block in the sequence
    uint64_t asked = 0;
    do {
      asked |= uint64_t{1} << (r.ids[p.cursor] - first);
      p.next = slot_of(r, ++p.cursor);
    } while (p.next == slot);
    for (int v = 0; v < r.n_vectors; ++v) t_.takers[n++] = {r.first_vector + v, i, p.n_slots, asked};
    ++p.n_slots;
    return n;
  }

  // Spreads the fetching of the following slot's panels over the n takers of this one: candidates jump, and no
  // hardware stream can guess where. Few takers fetch a part: a burst would stall on the fill buffers. Vector tiles
  // compute for longer than the read takes, and lost by it.
  void expect(int64_t following, int n) {
    constexpr int64_t kMostLines = 8;
    if (Tile::kRowStep == 1 || following == kNoSlot) return;
    const int64_t slot_bytes = job_.shape.panels_per_slot * job_.shape.panel_bytes;
    const int64_t lines = (slot_bytes / 64 + n - 1) / n;
    lines_per_taker_ = lines < kMostLines ? lines : kMostLines;
    ahead_ = job_.panels + following * slot_bytes;
    ahead_end_ = ahead_ + slot_bytes;
  }
  void fetch_ahead() {
    for (int64_t i = 0; i < lines_per_taker_ && ahead_ < ahead_end_; ++i, ahead_ += 64)
      __builtin_prefetch(ahead_, 0, 2);  // into L2
  }

  // n takers against the panels of a slot.
  void score(int64_t slot, const SoftmaxTaker* takers, int n) {
    const PanelShape& shape = job_.shape;
    const Elem* vectors = vectors_of(takers, n);
    const int64_t s_pitch = int64_t{shape.panels_per_slot} * kPanel;
    for (int i = 0; i < shape.panels_per_slot; ++i) {
      const std::byte* panel = job_.panels + (slot * shape.panels_per_slot + i) * shape.panel_bytes;
      Tile::scores(vectors, n, reinterpret_cast<const Elem*>(panel), shape.length, t_.s + i * kPanel,
                   s_pitch);
    }
    float* s = t_.s;
    for (int x = 0; x < n; ++x, s += s_pitch) {
      const SoftmaxTaker& taker = takers[x];
      fetch_ahead();
      mask(job_.requests[taker.request], taker.vector, slot, taker.asked, s);
      Sums::append(s, shape,
                   {t_.sums + taker.vector * t_.sum_pitch, int64_t{taker.n_slots} << block_bits_,
                    t_.shifts + taker.vector});
    }
  }

  // The takers' vectors one behind the other: in place where they are so, else copied.
  const Elem* vectors_of(const SoftmaxTaker* takers, int n) {
    const auto* all = reinterpret_cast<const Elem*>(job_.vectors);
    if (takers[n - 1].vector - takers[0].vector == n - 1) return all + takers[0].vector * pitch_;
    auto* to = reinterpret_cast<Elem*>(t_.gathered);
    for (int x = 0, end = 0; x < n; x = end) {
      for (end = x + 1; end < n && takers[end].vector == takers[end - 1].vector + 1; ++end) continue;
      __builtin_memcpy(to + x * pitch_, all + takers[x].vector * pitch_,
                       static_cast<size_t>((end - x) * pitch_) * sizeof(Elem));
    }
    return to;
  }

  // Hides what vector v does not see of a slot and what its request does not ask for.
  void mask(const SoftmaxRequest& r, int v, int64_t slot, uint64_t asked, float* s) const {
    const int B = job_.shape.blocks_per_slot, C = job_.shape.columns_per_block;
    const int64_t first = slot * B * C, limit = job_.limits[v] - first, patched = r.patch_column - first;
    const bool all_asked = asked == ~uint64_t{0} >> (64 - B);
    if (all_asked && limit >= B * C && !(patched >= 0 && patched < B * C)) return;
    for (int b = 0; b < B; ++b)
      for (int j = 0; j < C; ++j) {
        const int64_t column = int64_t{b} * C + j;
        if (column >= limit || (asked >> b & 1) == 0)
          s[j * B + b] = -__builtin_inff();
        else if (column == patched)
          s[j * B + b] = job_.patch[v];
      }
  }

  // Normalises the sums of every vector and averages over the vectors that saw a key.
  void finish(int i) {
    const SoftmaxRequest& r = job_.requests[i];
    const int64_t n = int64_t{t_.progress[i].n_slots} << block_bits_;
    float* mean = t_.sums + r.first_vector * t_.sum_pitch;
    int seeing = 0;
    for (int v = 0; v < r.n_vectors; ++v) {
      const float* sums = mean + v * t_.sum_pitch;
      const bool sees = t_.shifts[r.first_vector + v] != -__builtin_inff();
      seeing += sees ? 1 : 0;
      add_share(sums, n, sees ? 1.0f / total_of(sums, n) : 0.0f, v == 0, mean);
    }
    const float share = seeing > 0 ? 1.0f / static_cast<float>(seeing) : 0.0f;
    int64_t first = 0, slot = kNoSlot,
            begin = 0;  // of the id's slot: its place among the sums, its first block
    for (int x = 0; x < r.n_ids; ++x) {
      if (const int64_t of_id = slot_of(r, x); of_id != slot) {
        first += slot == kNoSlot ? 0 : int64_t{1} << block_bits_;
        slot = of_id;
        begin = (slot << block_bits_) - r.first_block;
      }
      r.score[x] = mean[first + r.ids[x] - begin] * share;
    }
  }

  static float total_of(const float* sums, int64_t n) {
    constexpr int kLanes = 16;  // independent sums: a single one could not be vectorised without reordering
    float lanes[kLanes] = {};
    int64_t x = 0;
    for (; x + kLanes <= n; x += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] += sums[x + j];
    float total = 0;
    for (; x < n; ++x) total += sums[x];
    for (const float each : lanes) total += each;
    return total;
  }

  // mean += sums * share; at first mean is sums itself.
  static void add_share(const float* sums, int64_t n, float share, bool first, float* mean) {
    if (first)
      for (int64_t x = 0; x < n; ++x) mean[x] *= share;
    else
      for (int64_t x = 0; x < n; ++x) mean[x] += sums[x] * share;
  }

  const SoftmaxJob& job_;
  const SoftmaxScratch& t_;
  const int block_bits_;
  const int64_t pitch_;
  const std::byte* ahead_ = nullptr;
  const std::byte* ahead_end_ = nullptr;
  int64_t lines_per_taker_ = 0;
};

template <TileOps Tile, class Sums = BlockSums<Tile>>
constexpr SoftmaxKernel make_softmax_kernel() {
  using Elem = typename Tile::Elem;
  return {
      .elem_bytes = static_cast<int>(sizeof(Elem)),
      .row_step = Tile::kRowStep,
      .pitch = [](int D) { return Tile::pitch(D); },
      .pack_keys =
          [](const std::byte* x, DType dtype, int64_t stride, int n, int D, std::byte* out) {
            Tile::pack_keys(x, dtype, stride, n, D, reinterpret_cast<Elem*>(out));
          },
      .pack_rows =
          [](const std::byte* x, DType dtype, int64_t stride, int n, int D, float factor, std::byte* out) {
            Tile::pack_rows(x, dtype, stride, n, D, factor, reinterpret_cast<Elem*>(out));
          },
      .score =
          [](const SoftmaxJob& job) {
            const typename Tile::Session session;
            SoftmaxLoop<Tile, Sums>(job).run();
          }};
}

}  // namespace
}  // namespace routerelay::cpu
