// SPDX-License-Identifier: Apache-2.0
// The loop of sub, sampled and antidiag, once for every ISA: slots of keys in ascending order, each scored for all
// requests that want it while its panel is in cache; per chunk of slots exp2 and sums per block; at the end the
// chunks are brought to one shift. Nothing is as long as the keys but the sums, one number per block. Included by
// kernel_<isa>.cc only; anonymous for the reason that isa/tile.h gives.
#pragma once

#include "cpu/isa/tile.h"
#include "cpu/route/kernel.h"

namespace routerelay::cpu {
namespace {

constexpr int64_t kNoSlot = INT64_MAX;
constexpr int64_t kChunkPitch = int64_t{kChunkPanels} * kPanel;

template <TileOps Tile>
class SoftmaxLoop {
 public:
  explicit SoftmaxLoop(const SoftmaxJob& job)
      : job_(job), t_(job.scratch), slots_per_chunk_(kChunkPanels / job.shape.panels_per_slot) {}

  void run() {
    int64_t slot = kNoSlot;
    for (int i = 0; i < job_.n_requests; ++i) {
      t_.progress[i].cursor = t_.progress[i].closed = 0;
      t_.filled[i] = 0;
      t_.next[i] = slot_of(job_.requests[i], 0);
      slot = t_.next[i] < slot ? t_.next[i] : slot;
    }
    while (slot != kNoSlot) slot = visit(slot);
    for (int i = 0; i < job_.n_requests; ++i) {
      if (t_.filled[i] > 0) close_chunk(i);
      finish(i);
    }
  }

 private:
  using Elem = typename Tile::Elem;

  int64_t slot_of(const SoftmaxRequest& r, int cursor) const {
    return cursor < r.n_ids ? (r.first_block + r.ids[cursor]) / job_.shape.blocks_per_slot : kNoSlot;
  }

  // Scores `slot` for everyone who wants it; the lowest slot that anyone wants after it.
  int64_t visit(int64_t slot) {
    int64_t following = kNoSlot;
    for (int i = 0; i < job_.n_requests;) {
      int end = i;
      // Requests that store to the same column share one pass over the panel.
      while (end < job_.n_requests && t_.next[end] == slot && t_.filled[end] == t_.filled[i])
        take(end++, slot);
      if (end == i) {
        following = t_.next[i] < following ? t_.next[i] : following;
        ++i;
        continue;
      }
      score(i, end, slot);
      for (; i < end; ++i) {
        if (++t_.filled[i] == slots_per_chunk_) close_chunk(i);
        following = t_.next[i] < following ? t_.next[i] : following;
      }
    }
    return following;
  }

  // Notes which blocks of the slot request i asks for, and moves it on.
  void take(int i, int64_t slot) {
    const SoftmaxRequest& r = job_.requests[i];
    SoftmaxProgress& p = t_.progress[i];
    uint64_t asked = 0;
    do {
      asked |= uint64_t{1} << ((r.first_block + r.ids[p.cursor]) % job_.shape.blocks_per_slot);
      t_.next[i] = slot_of(r, ++p.cursor);
    } while (t_.next[i] == slot);
    p.slot[t_.filled[i]] = slot;
    p.asked[t_.filled[i]] = asked;
  }

  // Requests [first, end) against the panels of a slot.
  void score(int first, int end, int64_t slot) {
    const PanelShape& shape = job_.shape;
    const int row = job_.requests[first].first_vector;
    const int M = job_.requests[end - 1].first_vector + job_.requests[end - 1].n_vectors - row;
    const Elem* vectors =
        reinterpret_cast<const Elem*>(job_.vectors) + int64_t{row} * Tile::pitch(shape.length);
    float* s = t_.s + row * kChunkPitch + t_.filled[first] * shape.panels_per_slot * kPanel;
    for (int i = 0; i < shape.panels_per_slot; ++i, s += kPanel) {
      const auto* panel =
          reinterpret_cast<const Elem*>(job_.panels + (slot * shape.panels_per_slot + i) * shape.panel_bytes);
      // A tile that stores whole steps of rows would overwrite the scores of the requests behind.
      if (Tile::kRowStep > 1 && row + M < job_.n_vectors && M % Tile::kRowStep != 0) {
        Tile::scores(vectors, M, panel, shape.length, t_.spill, kPanel);
        for (int r = 0; r < M; ++r)
          __builtin_memcpy(s + r * kChunkPitch, t_.spill + r * kPanel, kPanel * sizeof(float));
      } else {
        Tile::scores(vectors, M, panel, shape.length, s, kChunkPitch);
      }
    }
  }

  // Turns the chunk of request i into sums per block, relative to the chunk's largest score.
  [[gnu::noinline]] void close_chunk(int i) {
    const SoftmaxRequest& r = job_.requests[i];
    SoftmaxProgress& p = t_.progress[i];
    const PanelShape& shape = job_.shape;
    const int n_slots = t_.filled[i], n_panels = n_slots * shape.panels_per_slot;
    float panel_sums[kChunkPanels];
    for (int v = r.first_vector; v < r.first_vector + r.n_vectors; ++v) {
      float* s = t_.s + v * kChunkPitch;
      for (int x = 0; x < n_slots; ++x)
        mask(r, v, p.slot[x], p.asked[x], s + x * shape.panels_per_slot * kPanel);
      const float shift = Tile::row_max(s, int64_t{n_panels} * kPanel);
      Tile::exp2_sums(s, n_panels, shift, panel_sums);
      t_.shifts[v * t_.shift_pitch + p.closed / slots_per_chunk_] = shift;
      float* sums = t_.sums + v * t_.sum_pitch + int64_t{p.closed} * shape.blocks_per_slot;
      for (int x = 0; x < n_slots; ++x) {
        if (shape.blocks_per_slot > 1)
          sum_blocks(s + x * kPanel, sums + x * shape.blocks_per_slot);
        else
          sums[x] = shape.panels_per_slot == 1 ? panel_sums[x] : panel_sums[2 * x] + panel_sums[2 * x + 1];
      }
    }
    p.closed += n_slots;
    t_.filled[i] = 0;
  }

  void sum_blocks(const float* s, float* sums) const {
    switch (job_.shape.blocks_per_slot) {
      case 2:
        return sum_interleaved<2>(s, sums);
      case 4:
        return sum_interleaved<4>(s, sums);
      case 8:
        return sum_interleaved<8>(s, sums);
      case 16:
        return sum_interleaved<16>(s, sums);
      case 32:
        return sum_interleaved<32>(s, sums);
      default:
        return sum_interleaved<64>(s, sums);
    }
  }
  template <int kBlocks>
  static void sum_interleaved(const float* s, float* sums) {
    float total[kBlocks] = {};
    for (int j = 0; j < kPanel; j += kBlocks)
      for (int b = 0; b < kBlocks; ++b) total[b] += s[j + b];
    for (int b = 0; b < kBlocks; ++b) sums[b] = total[b];
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

  // Brings the chunks of every vector to one shift, normalises, and averages over the vectors that saw a key.
  void finish(int i) {
    const SoftmaxRequest& r = job_.requests[i];
    for (int x = 0; x < r.n_ids; ++x) r.score[x] = 0;
    int seeing = 0;
    for (int v = r.first_vector; v < r.first_vector + r.n_vectors; ++v)
      if (add_vector(r, t_.progress[i].closed, v)) ++seeing;
    const float share = seeing > 0 ? 1.0f / static_cast<float>(seeing) : 0.0f;
    for (int x = 0; x < r.n_ids; ++x) r.score[x] *= share;
  }

  // Adds the masses of vector v; false when it saw no key.
  bool add_vector(const SoftmaxRequest& r, int n_slots, int v) {
    float* shifts = t_.shifts + v * t_.shift_pitch;
    const float* sums = t_.sums + v * t_.sum_pitch;
    const int B = job_.shape.blocks_per_slot;
    const int n_chunks = (n_slots + slots_per_chunk_ - 1) / slots_per_chunk_;
    const int64_t n_sums = int64_t{n_slots} * B, chunk = int64_t{slots_per_chunk_} * B;
    float top = -__builtin_inff();
    for (int c = 0; c < n_chunks; ++c) top = shifts[c] > top ? shifts[c] : top;
    if (top == -__builtin_inff()) return false;
    double total = 0;
    for (int c = 0; c < n_chunks; ++c) {
      shifts[c] = __builtin_exp2f(shifts[c] - top);
      float held = 0;
      for (int64_t x = c * chunk; x < (c + 1) * chunk && x < n_sums; ++x) held += sums[x];
      total += static_cast<double>(shifts[c]) * static_cast<double>(held);
    }
    for (int c = 0; c < n_chunks; ++c) shifts[c] = static_cast<float>(shifts[c] / total);
    if (B == 1) {
      for (int x = 0; x < r.n_ids; ++x) r.score[x] += sums[x] * shifts[x / slots_per_chunk_];
      return true;
    }
    int64_t at = -1, previous = -1;  // the slot's place among those that were scored
    for (int x = 0; x < r.n_ids; ++x) {
      const int64_t block = r.first_block + r.ids[x], slot = block / B;
      at += slot != previous;
      previous = slot;
      r.score[x] += sums[at * B + block % B] * shifts[at / slots_per_chunk_];
    }
    return true;
  }

  const SoftmaxJob& job_;
  const SoftmaxScratch& t_;
  const int slots_per_chunk_;
};

template <TileOps Tile>
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
            SoftmaxLoop<Tile>(job).run();
          }};
}

}  // namespace
}  // namespace routerelay::cpu
