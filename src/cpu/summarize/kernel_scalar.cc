// SPDX-License-Identifier: Apache-2.0
// Block summaries by the scalar tile's conversions and the compiler's scalar vectors.
#include "cpu/isa/tile_scalar.h"
#include "cpu/summarize/kernel_block.h"

namespace routerelay::cpu {

void summarize_scalar(const SummarizeJob& job) {
  summarize_block<TileScalar>(job);
}

}  // namespace routerelay::cpu
