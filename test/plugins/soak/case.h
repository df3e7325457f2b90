// SPDX-License-Identifier: Apache-2.0
// One random attention call: its shape, types, memory layout and kind of mask, drawn from a seed and a number, so that
// any call of a run can be had again alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/rng.h"
#include "routerelay/tensor.hpp"

namespace routerelay::soak {

enum class MaskKind : uint8_t {
  kCausal,      // row r sees the keys up to `position + r`
  kPadded,      // the same, the cache padded to 256 cells, the last rows padding that sees nothing
  kWindow,      // only the last few of them
  kSlots,       // a unified cache: every row and cell is of one of several prompts, cells in any order
  kEverything,  // every key
  kHoles,       // causal, some rows hidden altogether
  kRandom,      // each value for itself
  kRuns,        // random too, in runs of neighbouring keys
  kFinite,      // some values neither 0 nor -inf: the plug-in delegates the call
};
inline constexpr std::array<const char*, 9> kMaskNames = {"causal", "padded", "window", "slots", "everything",
                                                          "holes",  "random", "runs",   "finite"};

enum class Layout : uint8_t {
  kCache,       // [streams, cells, heads, dim], as llama.cpp's caches and queries lie
  kContiguous,  // [streams, heads, tokens, dim]
  kGaps,        // kCache between heads of something else
};
inline constexpr std::array<const char*, 3> kLayoutNames = {"cache", "contiguous", "gaps"};

struct Case {
  uint64_t seed = 0, number = 0;
  DType kv = DType::kF16;
  int64_t dim = 64, q_heads = 1, kv_heads = 1, rows = 1, keys = 1, streams = 1;
  Layout q_layout = Layout::kCache, k_layout = Layout::kCache, v_layout = Layout::kCache;
  MaskKind mask = MaskKind::kCausal;
  int64_t mask_rows = 1;      // at least `rows`: older hosts pad
  int64_t mask_heads = 1;     // more than one: declined
  int64_t mask_streams = 1;   // one for all, or one each
  bool mixed = false;         // the other streams' masks are of any kind
  bool signed_zeros = false;  // some visible values are -0
  bool stale = false;         // cells that no row sees hold large values of earlier prompts
  double sharpness = 1;       // of the logits, standard deviation
  int threads = 1;

  // Random numbers of their own for each use.
  Philox random(uint64_t use) const { return {seed, number * 16 + use}; }
};

template <class T, size_t N>
T pick(Philox& random, const std::array<T, N>& choices) {
  return choices[random.below(N)];
}
// From 1 to n, small ones as often as large ones.
inline int64_t up_to(Philox& random, int64_t n) {
  return std::clamp<int64_t>(std::llround(std::exp(random.uniform() * std::log(n + 0.5))), 1, n);
}
inline bool once_in(Philox& random, uint32_t n) {
  return random.below(n) == 0;
}

// Most calls are small, so that many fit into a run; one in sixteen may be as large as a real micro-batch.
inline void shrink(Case& c, Philox& random) {
  const double allowed = once_in(random, 16) ? 4e9 : 2e8;  // operations: seconds, and a tenth of one
  const auto cost = [&] { return 4.0 * c.rows * c.keys * c.q_heads * c.dim * c.streams; };
  while (cost() > allowed && c.kv_heads > 1)
    c.q_heads = c.q_heads / c.kv_heads * (c.kv_heads / 2), c.kv_heads /= 2;
  while (cost() > allowed && c.streams > 1) --c.streams;
  while (cost() > allowed && c.q_heads > c.kv_heads) c.q_heads -= c.kv_heads;
  if (cost() <= allowed) return;
  int64_t& longer = once_in(random, 2) ? c.rows : c.keys;
  longer = std::max<int64_t>(1, static_cast<int64_t>(longer * (allowed / cost())));
}

inline Case draw(uint64_t seed, uint64_t number) {
  Case c{.seed = seed, .number = number};
  Philox random = c.random(0);
  c.kv = pick(random, std::array{DType::kF16, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ8_0});
  if (once_in(random, 40)) c.kv = DType::kF32;
  do c.dim = pick(random, std::array<int64_t, 5>{64, 80, 96, 128, 256});
  while (c.dim % block_elements(c.kv) != 0);
  c.kv_heads = 1 + random.below(4);
  c.q_heads = c.kv_heads * pick(random, std::array<int64_t, 8>{1, 1, 2, 3, 4, 5, 7, 8});
  c.rows = up_to(random, 700);
  c.keys = up_to(random, 4200);
  if (once_in(random, 3)) c.keys = std::max<int64_t>(256, c.keys / 256 * 256);
  if (once_in(random, 4)) c.streams = 1 + random.below(4);
  shrink(c, random);
  if (c.keys < c.rows && !once_in(random, 8)) std::swap(c.keys, c.rows);
  c.rows = std::min<int64_t>(c.rows, 700);
  c.q_layout = once_in(random, 4) ? static_cast<Layout>(random.below(3)) : Layout::kCache;
  c.k_layout = c.v_layout = once_in(random, 3) ? static_cast<Layout>(random.below(3)) : Layout::kCache;
  if (once_in(random, 8)) c.v_layout = static_cast<Layout>(random.below(3));
  c.mask = static_cast<MaskKind>(random.below(kMaskNames.size()));
  if (c.mask == MaskKind::kFinite && !once_in(random, 4)) c.mask = MaskKind::kCausal;
  c.mask_rows = once_in(random, 4) ? (c.rows + 63) / 64 * 64 : c.rows;
  c.mask_heads = once_in(random, 40) ? c.q_heads : 1;
  c.mask_streams = once_in(random, 4) ? 1 : c.streams;
  c.mixed = once_in(random, 3);
  c.signed_zeros = once_in(random, 6);
  c.stale = once_in(random, 3);
  c.sharpness = pick(random, std::array{0.1, 1.0, 1.0, 1.0, 2.0, 6.0});
  c.threads = 1 + static_cast<int>(random.below(4));
  return c;
}

inline std::string to_text(const Case& c) {
  const auto number = [](const char* name, auto n) {
    return std::string(name) + " " + std::to_string(n) + ", ";
  };
  return std::string(dtype_name(c.kv)) + ", " + number("dim", c.dim) + number("q_heads", c.q_heads) +
         number("kv_heads", c.kv_heads) + number("rows", c.rows) + number("keys", c.keys) +
         number("streams", c.streams) + "q, k, v " + kLayoutNames[static_cast<size_t>(c.q_layout)] + " " +
         kLayoutNames[static_cast<size_t>(c.k_layout)] + " " + kLayoutNames[static_cast<size_t>(c.v_layout)] +
         ", mask " + kMaskNames[static_cast<size_t>(c.mask)] + (c.mixed ? " and others (" : " (") +
         number("rows", c.mask_rows) + number("heads", c.mask_heads) + "streams " +
         std::to_string(c.mask_streams) + (c.signed_zeros ? ", signed zeros" : "") + "), " +
         (c.stale ? "stale cells, " : "") + number("sharpness", c.sharpness) + "threads " +
         std::to_string(c.threads);
}

}  // namespace routerelay::soak
