// SPDX-License-Identifier: Apache-2.0
// sub, sampled and antidiag over the amx tile.
#include "cpu/isa/tile_amx.h"
#include "cpu/route/block_sums_512.h"
#include "cpu/route/kernel_softmax.h"

namespace routerelay::cpu {

constinit const SoftmaxKernel kSoftmaxAmx = make_softmax_kernel<TileAmx, BlockSums512<3>>();

}  // namespace routerelay::cpu
