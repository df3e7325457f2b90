// SPDX-License-Identifier: Apache-2.0
// Every router over the scalar tile.
#include "cpu/isa/tile_scalar.h"
#include "cpu/route/kernel_pair.h"
#include "cpu/route/kernel_softmax.h"

namespace routerelay::cpu {

constinit const SoftmaxKernel kSoftmaxScalar = make_softmax_kernel<TileScalar>();
constinit const PairKernel kPairScalar = make_pair_kernel<TileScalar>();

}  // namespace routerelay::cpu
