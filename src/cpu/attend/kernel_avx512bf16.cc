// SPDX-License-Identifier: Apache-2.0
// The attend loop over the avx512bf16 tile.
#include "cpu/attend/kernel_loop.h"
#include "cpu/isa/tile_avx512bf16.h"

namespace routerelay::cpu {

const Kernel* find_avx512bf16(int64_t head_dim) {
  return find_kernel<TileAvx512Bf16, Isa::kAvx512Bf16>(head_dim);
}

}  // namespace routerelay::cpu
