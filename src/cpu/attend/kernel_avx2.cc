// SPDX-License-Identifier: Apache-2.0
// The attend loop over the avx2 tile.
#include "cpu/attend/kernel_loop.h"
#include "cpu/isa/tile_avx2.h"

namespace routerelay::cpu {

const Kernel* find_avx2(int64_t head_dim) {
  return find_kernel<TileAvx2, Isa::kAvx2>(head_dim);
}

}  // namespace routerelay::cpu
