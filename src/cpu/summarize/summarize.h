// SPDX-License-Identifier: Apache-2.0
// k, v -> Summary on the CPU: one pass over K (and over V when its mean is asked for), block by block.
#pragma once

#include "core/stages.h"

namespace routerelay::cpu {

// Fills args.summary, sized by args.needs. Fails only with kAborted and kOutOfMemory.
Status summarize(const SummarizeArgs& args, Exec& exec);

}  // namespace routerelay::cpu
