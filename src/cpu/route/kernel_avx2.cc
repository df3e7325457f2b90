// SPDX-License-Identifier: Apache-2.0
// Every router over the avx2 tile.
#include "cpu/isa/tile_avx2.h"
#include "cpu/route/kernel_pair.h"
#include "cpu/route/kernel_softmax.h"

namespace routerelay::cpu {

constinit const SoftmaxKernel kSoftmaxAvx2 = make_softmax_kernel<TileAvx2>();
constinit const PairKernel kPairAvx2 = make_pair_kernel<TileAvx2>();

}  // namespace routerelay::cpu
