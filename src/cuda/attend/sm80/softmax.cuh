// SPDX-License-Identifier: Apache-2.0
// The classic running softmax of a warp's queries, in base 2: scores -> weights relative to kBelow bits
// below the largest score so far.
#pragma once

#include "cuda/attend/config.h"
#include "cuda/isa/math.cuh"

namespace routerelay::cuda {

// Of kRowTiles x 2 queries a thread: query lane / 4 of each tile of 16, and the one 8 below.
template <class Element, int kRowTiles>
struct RunningSoftmax {
  float top[kRowTiles][2];  // in bits; what exponentials are relative to
  float sum[kRowTiles][2];  // of this thread's columns

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      top[m][0] = top[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0;
    }
  }

  // Scores [q.k, unscaled] of a tile of 8 n keys -> weights, as the left operands of products over 16 keys each. True
  // where a maximum moved: then outputs so far are to be multiplied by `factor`, per query; the sums already are.
  template <int n>
  __device__ __forceinline__ bool weigh(const float (&scores)[kRowTiles][n][4], float scale_log2,
                                        uint32_t (&weights)[kRowTiles][n / 2][4],
                                        float (&factor)[kRowTiles][2]) {
    bool moved = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float most = -INFINITY;
#pragma unroll
        for (int j = 0; j < n; ++j)
          most = fmaxf(most, fmaxf(scores[m][j][2 * row], scores[m][j][2 * row + 1]));
        const float raised = fmaxf(top[m][row], fmaf(quad_max(most), scale_log2, -kBelow));
        const float base = raised == -INFINITY ? 0 : raised;  // nothing seen yet: -inf - 0, not -inf - -inf
        factor[m][row] = exp2_approx(top[m][row] - base);
        moved |= raised != top[m][row];
        top[m][row] = raised;
        float even = 0, odd = 0;
#pragma unroll
        for (int j = 0; j < n; ++j) {
          const float x = exp2_approx(fmaf(scores[m][j][2 * row], scale_log2, -base));
          const float y = exp2_approx(fmaf(scores[m][j][2 * row + 1], scale_log2, -base));
          even += x, odd += y;
          weights[m][j / 2][j % 2 * 2 + row] = packed<Element>(x, y);
        }
        sum[m][row] = fmaf(sum[m][row], factor[m][row], even + odd);
      }
    return moved;
  }

  // Ends a query: what its output is to be multiplied by, and its lse_log2. Without a key: 0 and -inf.
  __device__ float finish(int m, int row, float& lse_log2) const {
    const float total = quad_sum(sum[m][row]);
    lse_log2 = total == 0 ? -INFINITY : top[m][row] + log2f(total);  // NaN stays NaN
    return total == 0 ? 0 : reciprocal_approx(total);
  }
};

}  // namespace routerelay::cuda
