// SPDX-License-Identifier: Apache-2.0
// The running softmax of two query rows per thread, in base 2: scores -> probabilities, with the maxima and sums that
// scale the output. A quad of threads holds a row; thread t of it has columns 8 j + 2 t and 8 j + 2 t + 1.
#pragma once

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "cuda/attend/config.h"
#include "cuda/isa/math.cuh"

namespace routerelay::cuda {

// What a score of each of a thread's two rows is worth, in bits: one for all, or its row's own.
struct OneScale {
  float log2;
  __device__ float operator[](int) const { return log2; }
};
struct RowScales {
  float log2[2];
  __device__ float operator[](int row) const { return log2[row]; }
};

// Registers 4 p + 2 r and 4 p + 2 r + 1 of an accumulator are pair p of row r, the thread's two rows being 8 apart.
//
// A step's exponentials are taken relative to kBelow bits below an earlier maximum of the row. Whether scores went too
// far beyond it is read off their sum: only then are they taken again. So no exponential waits for a maximum and its
// way through the quad, and no maximum is taken at all, except in a row's first step.
template <class Element>
struct Softmax {
  // The sum of a thread's share of a step from which on the step is taken anew: a row's maximum being 2^kBelow, later
  // scores may rise by 2 to 7 bits, as they are many or few. f16 ends at 2^16.
  static constexpr float kMost = 0x1p15;
  // Below every score, in bits. Finite, so that a row that has seen nothing needs no care: its exponentials are of
  // -inf.
  static constexpr float kLowest = -FLT_MAX;
  // Exponentials set the pace: one takes its unit for 8 clocks, and all else that a step needs fits into the gaps
  // between them. ptxas left alone would put it before and after. It is kept among them by dependences that change no
  // value: scores of a chunk wait for the sums of the second chunk before.
  static constexpr int kChunk = 4;  // pairs
  static constexpr int kAhead = 2;  // chunks

  float top[2] = {kLowest, kLowest};  // in bits; what the row's exponentials are relative to
  float sum[2] = {0, 0};              // of this thread's columns, the newest step not among them
  float step_sum[2] = {0, 0};         // of the newest step

  // Scores [q.k, unscaled] of a step -> probabilities, packed as the left operand of the next product.
  // False where a row does not fit: then the step's scores are to be made again, raised and weighed again.
  template <int N, class Scale>
  __device__ __forceinline__ bool weigh(float (&scores)[N], Scale scale_log2,
                                        uint32_t (&probability)[N / 2]) {
    constexpr int kPairs = N / 4, kChunks = kPairs / kChunk;  // of a row
    sum[0] += step_sum[0];
    sum[1] += step_sum[1];
    float sums[2 * kChunks];  // up to and with each chunk
#pragma unroll
    for (int c = 0; c < 2 * kChunks; ++c) {
      const int row = c / kChunks;
      float ready = -top[row];
      if (c >= kAhead) {
        const float sums_before = sums[c - kAhead];
        const bool same_row =
            (c - kAhead) / kChunks == row;  // the other's may be NaN, which must not come over
        ready = after(ready, same_row ? sums_before : __saturatef(sums_before));
      }
      float even = 0, odd = 0;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const int p = c % kChunks * kChunk + i;
        const float x = exp2_approx(fmaf(scores[4 * p + 2 * row], scale_log2[row], ready));
        const float y = exp2_approx(fmaf(scores[4 * p + 2 * row + 1], scale_log2[row], ready));
        even = i == 0 ? x : even + x;
        odd = i == 0 ? y : odd + y;
        probability[2 * p + row] = packed<Element>(x, y);
      }
      sums[c] = c % kChunks == 0 ? even + odd : sums[c - 1] + (even + odd);
    }
    step_sum[0] = sums[kChunks - 1];
    step_sum[1] = sums[2 * kChunks - 1];
    return step_sum[0] <= kMost && step_sum[1] <= kMost;  // not if NaN
  }

  // Sets the tops of rows that have seen nothing before a step.
  template <int N, class Scale>
  __device__ void begin(const float (&scores)[N], Scale scale_log2) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float most = largest(scores, row);
      if (top[row] == kLowest && most > -INFINITY) top[row] = fmaf(most, scale_log2[row], -kBelow);
    }
  }

  // Moves the tops of the rows that did not fit, and forgets the newest step, which will be weighed again. The output
  // so far is to be multiplied by `factor`, per row; the sums already are.
  template <int N, class Scale>
  __device__ void raise(const float (&scores)[N], Scale scale_log2, float (&factor)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float most = largest(scores, row);
      const bool fits = quad_max(step_sum[row] <= kMost ? 0 : 1) == 0;  // what overflows may end as NaN
      factor[row] = 1;
      step_sum[row] = 0;
      // Only where this row itself does not fit, so that its bits do not depend on its neighbours.
      if (fits) continue;
      const float raised = fmaf(most, scale_log2[row], -kBelow);
      factor[row] = exp2_approx(top[row] - raised);
      sum[row] *= factor[row];
      top[row] = raised;
    }
  }

  // Denominator of a row that has ended, relative to its top; 0 for a row without a key.
  __device__ float total(int row) const {
    return quad_sum(sum[row] + step_sum[row]);
  }

 private:
  template <int N>
  static __device__ __forceinline__ float largest(const float (&scores)[N], int row) {
    float even = -INFINITY, odd = -INFINITY;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      even = fmaxf(even, scores[i + 2 * row]);
      odd = fmaxf(odd, scores[i + 2 * row + 1]);
    }
    return quad_max(fmaxf(even, odd));
  }

  // `value`, not before `other` is known. Probabilities, and so sums, are finite where they count.
  static __device__ float after(float value, float other) {
    return fmaf(other, 0.0F, value);
  }
};

}  // namespace routerelay::cuda
