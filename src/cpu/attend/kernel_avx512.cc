// SPDX-License-Identifier: Apache-2.0
// The attend loop over the avx512 tile.
#include "cpu/attend/kernel_loop.h"
#include "cpu/isa/tile_avx512.h"

namespace routerelay::cpu {

const Kernel* find_avx512(int64_t head_dim) {
  return find_kernel<TileAvx512, Isa::kAvx512>(head_dim);
}

}  // namespace routerelay::cpu
