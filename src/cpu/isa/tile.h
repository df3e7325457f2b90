// SPDX-License-Identifier: Apache-2.0
// What a tile struct offers: the arithmetic of 64 keys against up to a few hundred query rows, one struct per
// ISA with the same members. attend and the routers are loops over these; docs/kernel/cpu-attend.md has the
// layouts.
//
// Every tile_<isa>.h and what it includes lives in an anonymous namespace: its code is compiled with that
// ISA's flags, and the linker must never pick such a copy for a caller that runs on a lesser machine. For the
// same reason these files use nothing of the standard library that could be emitted out of line.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "routerelay/tensor.hpp"

namespace routerelay::cpu {

// Keys per packed panel. Blocks of 128 keys are two panels.
inline constexpr int kPanel = 64;

constexpr int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// Memory to fetch into L2 while a tile computes, a line per step: the panel that the loop reads next, keys before
// values. When a route jumps no hardware stream can guess it, and one burst of prefetches would stall on the fill
// buffers instead.
struct Ahead {
  const std::byte* next = nullptr;
  int64_t lines = 0;
  const std::byte* then = nullptr;
  int64_t then_lines = 0;
  int per_row = 0;  // lines that each query row takes if the rows share them evenly

  // The first of n lines for one call, or null when all are on their way or none are wanted.
  static const std::byte* take(Ahead* ahead, int64_t n) {
    if (ahead == nullptr) return nullptr;
    if (ahead->lines <= 0) {
      ahead->next = ahead->then;
      ahead->lines = ahead->then_lines;
      ahead->then_lines = 0;
    }
    if (ahead->lines <= 0) return nullptr;
    const std::byte* first = ahead->next;
    ahead->next += n * 64;
    ahead->lines -= n;
    return first;
  }
};

// Layouts (D = head_dim or any multiple of 16; R = M rounded up to kRowStep: what rows, s, p and acc must
// hold):
//   rows    [M][pitch(D)] Elem                     queries, times what pack_rows was told
//   keys    [D][64] f32  or  [pitch(D) / 2][64][2] bf16    one panel, transposed; missing keys are zero
//   values  [64][D] f32  or  [32][D][2] bf16       one panel, value_size(D) elements; missing keys are zero
//   s       [R][s_pitch] f32, 64 used per panel    products of rows and keys
//   p       [R][64] Elem                           exp2((s - max) * factor)
//   acc     [R][D] f32                             sum of p * v
//   max [M] f32, sum [M][kLanes] f32               online softmax state; sum over the lanes is the
//   denominator
// All packed buffers are 64-byte aligned; s_pitch is a multiple of 16.
template <class T>
concept TileOps = requires(const std::byte* x, DType dtype, int64_t stride, int n, float factor,
                           typename T::Elem* e, const typename T::Elem* ce, float* f, const float* cf,
                           std::byte* out, Ahead* ahead) {
  typename T::Session;  // make one before scores or accumulate, on the stack of the work item: AMX's tile
                        // setup
  { T::kRowStep } -> std::convertible_to<int>;
  // Rows that attend takes through softmax and accumulate before the next ones, and through scores, a multiple.
  { T::kRowsAtOnce } -> std::convertible_to<int>;
  { T::rows_scored(n) } -> std::same_as<int>;
  { T::kLanes } -> std::convertible_to<int>;
  { T::pitch(n) } -> std::same_as<int>;
  { T::value_size(n) } -> std::same_as<int>;
  // n <= 64 tokens of D elements each, token_stride elements apart, as (source, dtype, token_stride, n, D,
  // out).
  { T::pack_keys(x, dtype, stride, n, n, e) } -> std::same_as<void>;
  // The same; false when a packed value is NaN or infinite.
  { T::pack_values(x, dtype, stride, n, n, e) } -> std::same_as<bool>;
  // Sets one key of a value panel to zero: (panel, D, key).
  { T::clear_value(e, n, n) } -> std::same_as<void>;
  // n query rows, multiplied by factor in f32 before any rounding: (source, dtype, token_stride, n, D,
  // factor, out).
  { T::pack_rows(x, dtype, stride, n, n, factor, e) } -> std::same_as<void>;
  // s = rows * keys: (rows, M, panel, D, s, s_pitch, ahead = null).
  { T::scores(ce, n, ce, n, f, stride, ahead) } -> std::same_as<void>;
  // acc += p * values: (p, M, panel, D, acc, ahead = null).
  { T::accumulate(ce, n, ce, n, f, ahead) } -> std::same_as<void>;
  // One online-softmax step over s [M][64]: (s, M, factor > 0, p, max, sum, acc, D, ahead = null), max of s. The factor
  // comes after the difference: products may pass f32's range or lose whole units where differences are exact.
  // -inf gives exactly 0, NaN stays NaN.
  { T::softmax(cf, n, factor, e, f, f, f, n, ahead) } -> std::same_as<void>;
  // out = acc / sum as dtype, lse = max + log2(sum); a row without keys gives 0 and -inf:
  // (acc, max times factor, sum, D, out, dtype, lse or null), one row.
  { T::finish(cf, factor, cf, n, out, dtype, f) } -> std::same_as<void>;
};

// What routers ask of a tile of f32 besides: the others have sums of their own.
template <class T>
concept ScoreOps = TileOps<T> && requires(int64_t n, float max, float* f, const float* cf) {
  // Largest of n contiguous scores, n a multiple of 16; NaN is ignored or returned.
  { T::row_max(cf, n) } -> std::same_as<float>;
  // s = exp2(s - max) in place over n panels of 64 contiguous scores, sums[i] = the sum of panel i.
  { T::exp2_sums(f, n, max, f) } -> std::same_as<void>;
};

// The online softmax lets a row's running maximum lag by this much (log2): p stays below 2^8, exact in f32
// and bf16 alike, and the accumulators are rescaled a handful of times per row instead of at every new
// maximum.
inline constexpr float kMaxSlack = 8.0f;

// 2^f for f in [-1/2, 1/2], minimax in the relative error (1.3e-7), the constant then set to 1 so that exp2(0) is
// exactly 1. AVX-512 has its own polynomial beside its own way to the exponent.
inline constexpr float kExp2Degree5[6] = {1.0f,           0x1.62e428p-1f, 0x1.ebf918p-3f,
                                          0x1.c6b6e4p-5f, 0x1.3d0c52p-7f, 0x1.5c08e6p-10f};
// A product of the maximum above it loses more than 2^-13 to rounding, and soon whole units: there the maximum is
// subtracted before the factor comes.
inline constexpr float kExactShift = 0x1p12f;
// Adding it leaves the nearest integer in the low mantissa bits of a float of magnitude below 2^22.
inline constexpr float kRoundMagic = 0x1.8p23f;
// Below this exponent exp2 is cut to exactly 0; 2^-126 is the least normal float.
inline constexpr float kExp2Floor = -126.0f;

namespace {

// A distance in log2 as one of scores, which factor > 0 multiplies. Finite, however small the factor: -inf stays below.
inline float in_scores(float log2, float factor) {
  constexpr float kMost = 0x1.fffffep127f;
  const float distance = log2 / factor;
  return distance < -kMost ? -kMost : distance > kMost ? kMost : distance;
}

// Calls fn.template operator()<dtype>(): one branch per pack instead of one per load.
template <class Fn>
auto with_dtype(DType dtype, Fn fn) {
  if (dtype == DType::kF32) return fn.template operator()<DType::kF32>();
  if (dtype == DType::kBF16) return fn.template operator()<DType::kBF16>();
  if (dtype == DType::kQ8_0) return fn.template operator()<DType::kQ8_0>();
  return fn.template operator()<DType::kF16>();
}

}  // namespace
}  // namespace routerelay::cpu
