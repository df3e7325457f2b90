// SPDX-License-Identifier: Apache-2.0
// q, k, summary, ledger -> proposal on the CPU: the rules of core/policy over the scores of cpu/route.
#pragma once

#include "core/stages.h"

namespace routerelay::cpu {

// Same bits whatever the threads, and for a row whatever its batch mates. Fails only with kAborted and kOutOfMemory.
Status relay(const RelayArgs& args, Exec& exec);

}  // namespace routerelay::cpu
