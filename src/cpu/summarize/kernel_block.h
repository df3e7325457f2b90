// SPDX-License-Identifier: Apache-2.0
// The summary of one block, once for every ISA: keys become f32 [n_keys][head_dim] by the tile's own conversion, the
// rest are loops over channels that the compiler turns into that ISA's vectors. Included by kernel_<isa>.cc only;
// anonymous for the reason that isa/tile.h gives.
#pragma once

#include "cpu/isa/tile.h"
#include "cpu/summarize/kernel.h"

namespace routerelay::cpu {
namespace {

// core/convert.h's f32_to_bf16 without its branch, so that a loop over channels becomes vectors.
inline uint16_t to_bf16_bits(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
  return static_cast<uint16_t>((nan ? u | 0x400000u : rounded) >> 16);
}

inline void set_zero(float* x, int n) {
  for (int c = 0; c < n; ++c) x[c] = 0;
}
inline void add(const float* __restrict x, int n, float* __restrict sum) {
  for (int c = 0; c < n; ++c) sum[c] += x[c];
}
// Sum of n_keys keys, 16 channels at a time: their sums stay in registers.
inline void sum_keys(const float* __restrict keys, int n_keys, int D, float* __restrict sum) {
  constexpr int kChannels = 16;  // divides every head_dim
  for (int c = 0; c < D; c += kChannels) {
    float total[kChannels] = {};
    for (int t = 0; t < n_keys; ++t)
      for (int i = 0; i < kChannels; ++i) total[i] += keys[t * D + c + i];
    for (int i = 0; i < kChannels; ++i) sum[c + i] = total[i];
  }
}
inline void multiply(float* x, int n, float factor) {
  for (int c = 0; c < n; ++c) x[c] *= factor;
}

// Keys of one head lie apart by the other heads', and soon a page: further than hardware looks ahead. 4.4 ms instead of
// 5.5 for 32K keys of 2 heads, head_dim 128, on one Sapphire Rapids core.
inline void fetch_keys(const SummarizeJob& job, int first, int n) {
  const int64_t bytes = bytes_of(job.dtype, job.head_dim), step = bytes_of(job.dtype, job.k_stride);
  const std::byte* key = job.k + first * step;
  for (int t = 0; t < n; ++t, key += step)
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(key + at);
}

// Reads the keys as f32 and sums groups of sub_k of them while they are in L1: the means, rounded to bf16, and their
// total for the block's mean. Always by groups, so that a mean has the same bits whether the sub-means are wanted or
// not.
template <class Tile>
void read_and_sum(const SummarizeJob& job, float* keys, float* group) {
  const int D = job.head_dim;
  if (job.mean != nullptr) set_zero(job.mean, D);
  for (int begin = 0, g = 0; begin < job.n_keys; begin += job.sub_k, ++g) {
    const int n = begin + job.sub_k < job.n_keys ? job.sub_k : job.n_keys - begin;
    Tile::pack_rows(job.k + begin * bytes_of(job.dtype, job.k_stride), job.dtype, job.k_stride, n, D, 1.0f,
                    keys + begin * D);
    fetch_keys(job, begin + 2 * job.sub_k, n);
    sum_keys(keys + begin * D, n, D, group);
    if (job.mean != nullptr) add(group, D, job.mean);
    if (job.sub_means == nullptr) continue;
    const float share = 1.0f / static_cast<float>(n);
    uint16_t* __restrict to = job.sub_means + g * D;
    for (int c = 0; c < D; ++c) to[c] = to_bf16_bits(group[c] * share);
  }
  if (job.mean != nullptr) multiply(job.mean, D, 1.0f / static_cast<float>(job.n_keys));
}

inline void write_box(const float* keys, int n_keys, int D, float* __restrict low, float* __restrict high) {
  for (int c = 0; c < D; ++c) low[c] = high[c] = keys[c];
  for (int t = 1; t < n_keys; ++t)
    for (int c = 0; c < D; ++c) {
      const float x = keys[t * D + c];
      low[c] = x < low[c] ? x : low[c];
      high[c] = x > high[c] ? x : high[c];
    }
}

// max |k - mean| with the mean as stored, so that the ball covers every key.
inline float radius_about(const float* keys, int n_keys, int D, const float* mean) {
  constexpr int kLanes = 16;  // independent sums: a single one could not be vectorised without reordering
  float widest = 0;
  for (int t = 0; t < n_keys; ++t) {
    float sums[kLanes] = {};
    for (int c = 0; c < D; c += kLanes)
      for (int i = 0; i < kLanes; ++i) {
        const float d = keys[t * D + c + i] - mean[c + i];
        sums[i] += d * d;
      }
    float squared = 0;
    for (const float each : sums) squared += each;
    widest = squared > widest ? squared : widest;
  }
  return __builtin_sqrtf(widest);
}

template <class Tile>
void summarize_block(const SummarizeJob& job) {
  const int D = job.head_dim;
  float* keys = job.scratch;
  float* group = keys + static_cast<int64_t>(job.n_keys) * D;
  if (job.mean != nullptr || job.sub_means != nullptr)
    read_and_sum<Tile>(job, keys, group);
  else
    Tile::pack_rows(job.k, job.dtype, job.k_stride, job.n_keys, D, 1.0f, keys);
  if (job.box_min != nullptr) write_box(keys, job.n_keys, D, job.box_min, job.box_max);
  if (job.radius != nullptr) *job.radius = radius_about(keys, job.n_keys, D, job.mean);
  if (job.value_mean == nullptr) return;
  Tile::pack_rows(job.v, job.dtype, job.v_stride, job.n_keys, D, 1.0f, keys);
  set_zero(job.value_mean, D);
  for (int t = 0; t < job.n_keys; ++t) add(keys + t * D, D, job.value_mean);
  multiply(job.value_mean, D, 1.0f / static_cast<float>(job.n_keys));
}

}  // namespace
}  // namespace routerelay::cpu
