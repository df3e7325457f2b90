// SPDX-License-Identifier: Apache-2.0
// The tile in plain C++ for the baseline machine; the compiler's own vectors do what they can.
#pragma once

#include <cmath>

#include "core/convert.h"
#include "cpu/isa/tile.h"

namespace routerelay::cpu {
namespace {

struct TileScalar {
  using Elem = float;
  static constexpr int kRowStep = 1;
  static constexpr int kRowsAtOnce = 64;  // their scores and p are 16 KiB each
  static constexpr int rows_scored(int) { return kRowsAtOnce; }
  static constexpr int kLanes = 4;
  static constexpr int pitch(int D) { return D; }
  static constexpr int value_size(int D) { return kPanel * D; }
  struct Session {
    Session() {}
  };

  static void pack_keys(const std::byte* k, DType dtype, int64_t token_stride, int n, int D, float* out) {
    for (int d = 0; d < D; ++d)
      for (int j = 0; j < kPanel; ++j)
        out[d * kPanel + j] = j < n ? load_f32(k, dtype, j * token_stride + d) : 0.0f;
  }

  static bool pack_values(const std::byte* v, DType dtype, int64_t token_stride, int n, int D, float* out) {
    float check = 0;  // x * 0 is NaN exactly when x is not finite
    for (int j = 0; j < kPanel; ++j)
      for (int d = 0; d < D; ++d) {
        const float x = j < n ? load_f32(v, dtype, j * token_stride + d) : 0.0f;
        out[j * D + d] = x;
        check += x * 0.0f;
      }
    return check == 0.0f;
  }

  static void clear_value(float* panel, int D, int key) {
    for (int d = 0; d < D; ++d) panel[key * D + d] = 0;
  }

  static void pack_rows(const std::byte* q, DType dtype, int64_t token_stride, int M, int D, float factor,
                        float* out) {
    for (int i = 0; i < M; ++i)
      for (int d = 0; d < D; ++d) out[i * D + d] = load_f32(q, dtype, i * token_stride + d) * factor;
  }

  static void scores(const float* rows, int M, const float* panel, int D, float* s, int64_t s_pitch,
                     Ahead* = nullptr) {
    // 16 keys at a time: four SSE registers of sums that stay in registers over the loop of d.
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < kPanel; j += 16) {
        float sum[16] = {};
        for (int d = 0; d < D; ++d) {
          const float q = rows[i * D + d];
          for (int x = 0; x < 16; ++x) sum[x] += q * panel[d * kPanel + j + x];
        }
        for (int x = 0; x < 16; ++x) s[i * s_pitch + j + x] = sum[x];
      }
  }

  static void accumulate(const float* p, int M, const float* panel, int D, float* acc, Ahead* = nullptr) {
    for (int i = 0; i < M; ++i)
      for (int d = 0; d < D; d += 16) {
        float sum[16];
        for (int x = 0; x < 16; ++x) sum[x] = acc[i * D + d + x];
        for (int j = 0; j < kPanel; ++j) {
          const float w = p[i * kPanel + j];
          for (int x = 0; x < 16; ++x) sum[x] += w * panel[j * D + d + x];
        }
        for (int x = 0; x < 16; ++x) acc[i * D + d + x] = sum[x];
      }
  }

  static float exp2(float x) {
    // The comparison is written so that NaN takes the polynomial and stays NaN.
    if (x < kExp2Floor) return 0.0f;
    const float shifted = x + kRoundMagic, f = x - (shifted - kRoundMagic);
    float y = kExp2Degree5[5];
    for (int i = 4; i >= 0; --i) y = y * f + kExp2Degree5[i];
    const uint32_t bits = __builtin_bit_cast(uint32_t, y) + (__builtin_bit_cast(uint32_t, shifted) << 23);
    return __builtin_bit_cast(float, bits);
  }

  static void softmax(const float* s, int M, float factor, float* p, float* max, float* sum, float* acc,
                      int D, Ahead* = nullptr) {
    for (int i = 0; i < M; ++i) {
      const float* row = s + i * kPanel;
      const float top = row_max(row, kPanel);
      if (top > max[i] + in_scores(kMaxSlack, factor)) {
        const float shrink = exp2((max[i] - top) * factor);
        for (int x = 0; x < kLanes; ++x) sum[i * kLanes + x] *= shrink;
        for (int d = 0; d < D; ++d) acc[i * D + d] *= shrink;
        max[i] = top;
      }
      // A row without a visible key so far has the maximum -inf: subtracting it would make NaN.
      const float shift = max[i] == -INFINITY ? 0.0f : max[i];
      for (int j = 0; j < kPanel; ++j) {
        p[i * kPanel + j] = exp2((row[j] - shift) * factor);
        sum[i * kLanes + j % kLanes] += p[i * kPanel + j];
      }
    }
  }

  static void finish(const float* acc, float max, const float* sum, int D, std::byte* out, DType dtype,
                     float* lse) {
    const float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    for (int d = 0; d < D; ++d) store_f32(out, dtype, d, acc[d] * inverse);
    if (lse != nullptr) *lse = total == 0.0f ? -INFINITY : max + __builtin_log2f(total);
  }

  static float row_max(const float* s, int64_t n) {
    float top = -INFINITY;
    for (int64_t j = 0; j < n; ++j) top = s[j] > top ? s[j] : top;
    return top;
  }

  static void exp2_sums(float* s, int64_t n, float max, float* sums) {
    const float shift = max == -INFINITY ? 0.0f : max;
    for (int64_t b = 0; b < n; ++b) {
      float total = 0;
      for (int j = 0; j < kPanel; ++j) total += s[b * kPanel + j] = exp2(s[b * kPanel + j] - shift);
      sums[b] = total;
    }
  }
};
static_assert(ScoreOps<TileScalar>);

}  // namespace
}  // namespace routerelay::cpu
