// SPDX-License-Identifier: Apache-2.0
// Block summaries by the avx512 tile's conversions and the compiler's avx512 vectors.
#include "cpu/isa/tile_avx512.h"
#include "cpu/summarize/kernel_block.h"

namespace routerelay::cpu {

void summarize_avx512(const SummarizeJob& job) {
  summarize_block<TileAvx512>(job);
}

}  // namespace routerelay::cpu
