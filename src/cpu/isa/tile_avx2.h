// SPDX-License-Identifier: Apache-2.0
// The f32 tile of AVX2: 6 query rows x 16 keys (or 16 of head_dim) in 12 accumulators.
#pragma once

#include "cpu/isa/vec_avx2.h"

namespace routerelay::cpu {
namespace {

struct TileAvx2 {
  using Elem = float;
  static constexpr int kRowStep = 1;
  static constexpr int kRowsAtOnce = 64;  // their scores and p are 16 KiB each
  static constexpr int rows_scored(int) { return kRowsAtOnce; }
  static constexpr int kLanes = 8;
  static constexpr int pitch(int D) { return D; }
  static constexpr int value_size(int D) { return kPanel * D; }
  struct Session {
    Session() {}
  };

  static void pack_keys(const std::byte* k, DType dtype, int64_t token_stride, int n, int D, float* out) {
    with_dtype(dtype, [&]<DType kType>() {
      const int64_t step = bytes_of(kType, token_stride);
      for (int j = 0; j < kPanel; j += 8)
        for (int d = 0; d < D; d += 8) {
          __m256 r[8];
          for (int i = 0; i < 8; ++i)
            r[i] = j + i < n ? load8<kType>(k + (j + i) * step, d) : _mm256_setzero_ps();
          transpose8(r);
          for (int i = 0; i < 8; ++i) _mm256_store_ps(out + (d + i) * kPanel + j, r[i]);
        }
    });
  }

  static bool pack_values(const std::byte* v, DType dtype, int64_t token_stride, int n, int D, float* out) {
    return with_dtype(dtype, [&]<DType kType>() {
      const int64_t step = bytes_of(kType, token_stride);
      __m256 check = _mm256_setzero_ps();  // x * 0 is NaN exactly when x is not finite
      for (int j = 0; j < kPanel; ++j)
        for (int d = 0; d < D; d += 8) {
          const __m256 x = j < n ? load8<kType>(v + j * step, d) : _mm256_setzero_ps();
          check = _mm256_fmadd_ps(x, _mm256_setzero_ps(), check);
          _mm256_store_ps(out + j * D + d, x);
        }
      return _mm256_movemask_ps(_mm256_cmp_ps(check, check, _CMP_UNORD_Q)) == 0;
    });
  }

  static void clear_value(float* panel, int D, int key) {
    for (int d = 0; d < D; d += 8) _mm256_store_ps(panel + key * D + d, _mm256_setzero_ps());
  }

  static void pack_rows(const std::byte* q, DType dtype, int64_t token_stride, int M, int D, float factor,
                        float* out) {
    with_dtype(dtype, [&]<DType kType>() {
      const int64_t step = bytes_of(kType, token_stride);
      for (int i = 0; i < M; ++i)
        for (int d = 0; d < D; d += 8) {
          const __m256 x = load8<kType>(q + i * step, d);
          _mm256_store_ps(out + i * D + d, _mm256_mul_ps(x, _mm256_set1_ps(factor)));
        }
    });
  }

  // Columns outside, rows inside: 16 keys of a panel are 8 KiB at head_dim 128 and stay in L1 for all rows.
  static void scores(const float* rows, int M, const float* panel, int D, float* s, int64_t s_pitch,
                     Ahead* ahead = nullptr) {
    for (int j = 0; j < kPanel; j += kColumn)
      for (int i = 0; i < M; i += kRows)
        with_rows(M - i, [&]<int R>() {
          multiply<R, false>(rows + i * D, D, panel + j, kPanel, D, s + i * s_pitch + j, s_pitch,
                             Ahead::take(ahead, D));
        });
  }

  static void accumulate(const float* p, int M, const float* panel, int D, float* acc,
                         Ahead* ahead = nullptr) {
    for (int d = 0; d < D; d += kColumn)
      for (int i = 0; i < M; i += kRows)
        with_rows(M - i, [&]<int R>() {
          multiply<R, true>(p + i * kPanel, kPanel, panel + d, D, kPanel, acc + i * D + d, D,
                            Ahead::take(ahead, kPanel));
        });
  }

  static void softmax(const float* s, int M, float factor, float* p, float* max, float* sum, float* acc,
                      int D, Ahead* = nullptr) {
    const float slack = in_scores(kMaxSlack, factor);
    const __m256 scale = _mm256_set1_ps(factor), floor = _mm256_set1_ps(in_scores(kExp2Floor, factor));
    for (int i = 0; i < M; ++i) {
      const float* row = s + i * kPanel;
      __m256 top = _mm256_load_ps(row);
      // The second operand survives a NaN in the first: NaN never becomes the maximum.
      for (int j = 8; j < kPanel; j += 8) top = _mm256_max_ps(_mm256_load_ps(row + j), top);
      const __m256 limit = _mm256_set1_ps(max[i] + slack);
      if (_mm256_movemask_ps(_mm256_cmp_ps(top, limit, _CMP_GT_OQ)) != 0)
        rescale(row, factor, max + i, sum + i * kLanes, acc + i * D, D);
      // A row without a visible key so far has the maximum -inf: subtracting it would make NaN.
      const __m256 shift = _mm256_set1_ps(max[i] == -__builtin_inff() ? 0.0f : max[i]);
      __m256 total = _mm256_load_ps(sum + i * kLanes);
#pragma GCC unroll 8
      for (int j = 0; j < kPanel; j += 8) {
        const __m256 y = exp2(_mm256_sub_ps(_mm256_load_ps(row + j), shift), scale, floor);
        _mm256_store_ps(p + i * kPanel + j, y);
        total = _mm256_add_ps(total, y);
      }
      _mm256_store_ps(sum + i * kLanes, total);
    }
  }

  static void finish(const float* acc, float max, const float* sum, int D, std::byte* out, DType dtype,
                     float* lse) {
    const float total = reduce_add(_mm256_load_ps(sum));
    const __m256 inverse = _mm256_set1_ps(total == 0.0f ? 0.0f : 1.0f / total);
    for (int d = 0; d < D; d += 8)
      store8(out + bytes_of(dtype, d), dtype, _mm256_mul_ps(_mm256_load_ps(acc + d), inverse));
    if (lse != nullptr) *lse = total == 0.0f ? -__builtin_inff() : max + __builtin_log2f(total);
  }

  static float row_max(const float* s, int64_t n) {
    __m256 top = _mm256_set1_ps(-__builtin_inff());
    for (int64_t j = 0; j < n; j += 8) top = _mm256_max_ps(_mm256_loadu_ps(s + j), top);
    return reduce_max(top);
  }

  static void exp2_sums(float* s, int64_t n, float max, float* sums) {
    const __m256 shift = _mm256_set1_ps(max == -__builtin_inff() ? 0.0f : max);
    for (int64_t b = 0; b < n; ++b) {
      __m256 total = _mm256_setzero_ps();
      for (int j = 0; j < kPanel; j += 8) {
        const __m256 y = exp2(_mm256_sub_ps(_mm256_loadu_ps(s + b * kPanel + j), shift));
        _mm256_storeu_ps(s + b * kPanel + j, y);
        total = _mm256_add_ps(total, y);
      }
      sums[b] = reduce_add(total);
    }
  }

 private:
  // 6 x 2 accumulators, 2 vectors of the panel and 1 broadcast are 15 of 16 registers; per step 12 FMAs (6 cycles
  // on two ports) stand against 8 loads (4 cycles).
  static constexpr int kRows = 6, kColumn = 16;

  template <class Fn>
  static void with_rows(int left, Fn fn) {
    if (left >= 6) return fn.template operator()<6>();
    if (left == 5) return fn.template operator()<5>();
    if (left == 4) return fn.template operator()<4>();
    if (left == 3) return fn.template operator()<3>();
    if (left == 2) return fn.template operator()<2>();
    return fn.template operator()<1>();
  }

  // c [R][16] (+)= a [R][K] * b [K][16].
  template <int R, bool kAdd>
  static void multiply(const float* a, int64_t a_pitch, const float* b, int64_t b_pitch, int K, float* c,
                       int64_t c_pitch, const std::byte* ahead) {
    if (ahead != nullptr)
      multiply<R, kAdd, true>(a, a_pitch, b, b_pitch, K, c, c_pitch, ahead);
    else
      multiply<R, kAdd, false>(a, a_pitch, b, b_pitch, K, c, c_pitch, ahead);
  }

  template <int R, bool kAdd, bool kAhead>
  static void multiply(const float* a, int64_t a_pitch, const float* b, int64_t b_pitch, int K, float* c,
                       int64_t c_pitch, [[maybe_unused]] const std::byte* ahead) {
    __m256 x[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      x[r][0] = kAdd ? _mm256_load_ps(c + r * c_pitch) : _mm256_setzero_ps();
      x[r][1] = kAdd ? _mm256_load_ps(c + r * c_pitch + 8) : _mm256_setzero_ps();
    }
    for (int k = 0; k < K; ++k) {
      if constexpr (kAhead) _mm_prefetch(ahead + k * 64, _MM_HINT_T1);
      const __m256 b0 = _mm256_load_ps(b + k * b_pitch), b1 = _mm256_load_ps(b + k * b_pitch + 8);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m256 y = _mm256_broadcast_ss(a + r * a_pitch + k);
        x[r][0] = _mm256_fmadd_ps(y, b0, x[r][0]);
        x[r][1] = _mm256_fmadd_ps(y, b1, x[r][1]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      _mm256_store_ps(c + r * c_pitch, x[r][0]);
      _mm256_store_ps(c + r * c_pitch + 8, x[r][1]);
    }
  }

  [[gnu::noinline]] static void rescale(const float* s, float factor, float* max, float* sum, float* acc,
                                        int D) {
    const float top = row_max(s, kPanel), before = *max;
    *max = top;
    if (before == -__builtin_inff()) return;  // nothing was summed yet
    const __m256 shrink = exp2(_mm256_set1_ps(before - top), _mm256_set1_ps(factor),
                               _mm256_set1_ps(in_scores(kExp2Floor, factor)));
    _mm256_store_ps(sum, _mm256_mul_ps(_mm256_load_ps(sum), shrink));
    for (int d = 0; d < D; d += 8) _mm256_store_ps(acc + d, _mm256_mul_ps(_mm256_load_ps(acc + d), shrink));
  }
};
static_assert(ScoreOps<TileAvx2>);

}  // namespace
}  // namespace routerelay::cpu
