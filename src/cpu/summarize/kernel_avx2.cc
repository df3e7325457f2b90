// SPDX-License-Identifier: Apache-2.0
// Block summaries by the avx2 tile's conversions and the compiler's avx2 vectors.
#include "cpu/isa/tile_avx2.h"
#include "cpu/summarize/kernel_block.h"

namespace routerelay::cpu {

void summarize_avx2(const SummarizeJob& job) {
  summarize_block<TileAvx2>(job);
}

}  // namespace routerelay::cpu
