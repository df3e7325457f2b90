// SPDX-License-Identifier: Apache-2.0
// centroid, box and ball, once for every ISA. box and ball are products of a row's queries with vectors of a block, so
// the tile's f32 product does them with the parts exchanged: the queries are its panel, the blocks its rows, and a
// summary needs no packing. Every pair is summed in one fixed order: its bits do not depend on the blocks beside it.
// Included by kernel_<isa>.cc only; anonymous for the reason that isa/tile.h gives.
#pragma once

#include "cpu/isa/tile.h"
#include "cpu/route/kernel.h"

namespace routerelay::cpu {
namespace {

constexpr float kLog2e = 0x1.715476p+0f, kLn2 = 0x1.62e43p-1f;
constexpr int kQueryPanels = 2;  // rows have at most 128 queries

inline float dot(const float* a, const float* b, int n) {
  constexpr int kLanes = 16;  // independent sums: a single one could not be vectorised without reordering
  float sums[kLanes] = {};
  for (int c = 0; c < n; c += kLanes)
    for (int i = 0; i < kLanes; ++i) sums[i] += a[c + i] * b[c + i];
  float total = 0;
  for (const float each : sums) total += each;
  return total;
}

template <ScoreOps Tile>
void mean_of(const std::byte* x, DType dtype, int64_t stride, int n, int D, float* tokens, float* out) {
  Tile::pack_rows(x, dtype, stride, n, D, 1.0f, tokens);
  constexpr int kChannels = 16;  // divides every head_dim; their sums stay in registers
  const float share = 1.0f / static_cast<float>(n);
  for (int c = 0; c < D; c += kChannels) {
    float total[kChannels] = {};
    for (int t = 0; t < n; ++t)
      for (int i = 0; i < kChannels; ++i) total[i] += tokens[t * D + c + i];
    for (int i = 0; i < kChannels; ++i) out[c + i] = total[i] * share;
  }
}

// core/convert.h's rounding to bf16 without its branch, so that a loop over channels becomes vectors.
inline float round_to_bf16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = nan ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u);
  return __builtin_bit_cast(float, rounded & 0xffff0000u);
}

template <ScoreOps Tile>
void group_means(const std::byte* x, DType dtype, int64_t stride, int n, int step, int D, float* tokens,
                 float* out) {
  for (int t = 0; t < n; t += step, out += D) {
    mean_of<Tile>(x + t * bytes_of(dtype, stride), dtype, stride, n - t < step ? n - t : step, D, tokens,
                  out);
    for (int c = 0; c < D; ++c) out[c] = round_to_bf16(out[c]);
  }
}

template <ScoreOps Tile>
void centroid(const PairJob& job) {
  float* mean = job.scratch + 128 * job.head_dim;
  mean_of<Tile>(job.q, job.q_dtype, job.q_stride, job.n_queries, job.head_dim, job.scratch, mean);
  for (int i = 0; i < job.n_ids; ++i)
    job.score[i] = job.scale * dot(mean, job.centre + int64_t{job.ids[i]} * job.head_dim, job.head_dim);
}

// The row's queries as panels [n][D][64]; absent ones are zero. Returns n.
template <ScoreOps Tile>
int pack_queries(const PairJob& job, float* panels) {
  const int n = (job.n_queries + kPanel - 1) / kPanel;
  for (int p = 0; p < n; ++p) {
    const int left = job.n_queries - p * kPanel;
    Tile::pack_keys(job.q + p * kPanel * bytes_of(job.q_dtype, job.q_stride), job.q_dtype, job.q_stride,
                    left < kPanel ? left : kPanel, job.head_dim, panels + p * job.head_dim * kPanel);
  }
  return n;
}

// fn(first, count) over runs of consecutive ids, at most kPairBlocks long.
template <class Fn>
void for_each_run(const PairJob& job, Fn fn) {
  for (int i = 0; i < job.n_ids;) {
    int end = i + 1;
    while (end < job.n_ids && end - i < kPairBlocks && job.ids[end] == job.ids[end - 1] + 1) ++end;
    fn(i, end - i);
    i = end;
  }
}

inline void hide_absent(float* s, int n_queries, int pitch) {
  for (int t = n_queries; t < pitch; ++t) s[t] = -__builtin_inff();
}

// q_c max_c where q_c is positive and q_c min_c where it is negative: two products, with max(q, 0) and min(q, 0).
template <ScoreOps Tile>
void box(const PairJob& job) {
  const int D = job.head_dim;
  float* negative = job.scratch;
  const int n = pack_queries<Tile>(job, negative), pitch = n * kPanel;
  float* positive = negative + n * D * kPanel;
  for (int i = 0; i < n * D * kPanel; ++i) {
    positive[i] = negative[i] > 0 ? negative[i] : 0.0f;
    negative[i] = negative[i] > 0 ? 0.0f : negative[i];
  }
  float* s = job.scratch + kPairScratchVectors * D;
  float* other = s + kPairBlocks * kQueryPanels * kPanel;
  for_each_run(job, [&](int first, int count) {
    const int64_t at = int64_t{job.ids[first]} * D;
    for (int p = 0; p < n; ++p) {
      Tile::scores(job.high + at, count, positive + p * D * kPanel, D, s + p * kPanel, pitch);
      Tile::scores(job.low + at, count, negative + p * D * kPanel, D, other + p * kPanel, pitch);
    }
    for (int b = 0; b < count; ++b) {
      float* bound = s + b * pitch;
      for (int t = 0; t < pitch; ++t) bound[t] += other[b * pitch + t];
      hide_absent(bound, job.n_queries, pitch);
      job.score[first + b] = job.scale * Tile::row_max(bound, pitch);
    }
  });
}

// log sum exp of n panels of log2-domain terms, in natural units; s is overwritten.
template <ScoreOps Tile>
float log_sum_exp(float* s, int n) {
  float sums[kQueryPanels] = {};
  const float top = Tile::row_max(s, int64_t{n} * kPanel);
  Tile::exp2_sums(s, n, top, sums);
  return kLn2 * (top + __builtin_log2f(sums[0] + sums[1]));
}

template <ScoreOps Tile>
void ball(const PairJob& job) {
  const int D = job.head_dim;
  float* queries = job.scratch;
  const int n = pack_queries<Tile>(job, queries), pitch = n * kPanel;
  float* s = job.scratch + kPairScratchVectors * D;
  float* lifted = s + kPairBlocks * kQueryPanels * kPanel;
  float* norm = lifted + kPairBlocks * kQueryPanels * kPanel;
  for (int t = 0; t < pitch; ++t) {
    float squared = 0;
    const float* q = queries + t / kPanel * D * kPanel + t % kPanel;
    for (int c = 0; c < D; ++c) squared += q[c * kPanel] * q[c * kPanel];
    norm[t] = __builtin_sqrtf(squared);
  }
  const float factor = job.scale * kLog2e;
  for_each_run(job, [&](int first, int count) {
    for (int p = 0; p < n; ++p)
      Tile::scores(job.centre + int64_t{job.ids[first]} * D, count, queries + p * D * kPanel, D,
                   s + p * kPanel, pitch);
    for (int b = 0; b < count; ++b) {
      float* base = s + b * pitch;
      for (int t = 0; t < pitch; ++t) base[t] *= factor;
      hide_absent(base, job.n_queries, pitch);
      if (job.lift != nullptr) {
        for (int t = 0; t < pitch; ++t) lifted[t] = base[t] + job.lift[first + b] * factor * norm[t];
        job.rescue[first + b] = log_sum_exp<Tile>(lifted, n);
      }
      job.score[first + b] = log_sum_exp<Tile>(base, n);
    }
  });
}

template <ScoreOps Tile>
constexpr PairKernel make_pair_kernel() {
  static_assert(sizeof(typename Tile::Elem) == sizeof(float));
  return {centroid<Tile>, box<Tile>, ball<Tile>, group_means<Tile>, dot};
}

}  // namespace
}  // namespace routerelay::cpu
