// SPDX-License-Identifier: Apache-2.0
// Every router over the avx512 tile.
#include "cpu/isa/tile_avx512.h"
#include "cpu/route/block_sums_512.h"
#include "cpu/route/kernel_pair.h"
#include "cpu/route/kernel_softmax.h"

namespace routerelay::cpu {

constinit const SoftmaxKernel kSoftmaxAvx512 = make_softmax_kernel<TileAvx512, BlockSums512<4>>();
constinit const PairKernel kPairAvx512 = make_pair_kernel<TileAvx512>();

}  // namespace routerelay::cpu
