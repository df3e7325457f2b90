// SPDX-License-Identifier: Apache-2.0
// The attend loop over the scalar tile.
#include "cpu/attend/kernel_loop.h"
#include "cpu/isa/tile_scalar.h"

namespace routerelay::cpu {

const Kernel* find_scalar(int64_t head_dim) {
  return find_kernel<TileScalar, Isa::kScalar>(head_dim);
}

}  // namespace routerelay::cpu
