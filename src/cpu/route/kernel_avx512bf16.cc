// SPDX-License-Identifier: Apache-2.0
// sub, sampled and antidiag over the avx512bf16 tile.
#include "cpu/isa/tile_avx512bf16.h"
#include "cpu/route/block_sums_512.h"
#include "cpu/route/kernel_softmax.h"

namespace routerelay::cpu {

constinit const SoftmaxKernel kSoftmaxAvx512Bf16 = make_softmax_kernel<TileAvx512Bf16, BlockSums512<3>>();

}  // namespace routerelay::cpu
