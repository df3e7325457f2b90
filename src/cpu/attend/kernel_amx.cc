// SPDX-License-Identifier: Apache-2.0
// The attend loop over the amx tiles.
#include "cpu/attend/kernel_loop.h"
#include "cpu/isa/tile_amx.h"

namespace routerelay::cpu {

const Kernel* find_amx(int64_t head_dim, DType kv_dtype) {
  return kv_dtype == DType::kBF16 ? find_kernel<TileAmx, Isa::kAmxBf16>(head_dim)
                                  : find_kernel<TileAmxSplit, Isa::kAmxBf16>(head_dim);
}

}  // namespace routerelay::cpu
