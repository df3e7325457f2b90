// SPDX-License-Identifier: Apache-2.0
// q, k, summary, proposal, ledger -> the next ledger and in it the routes, on the CPU: the rules of core/policy over
// this folder's scores.
#pragma once

#include "core/stages.h"

namespace routerelay::cpu {

// Same bits whatever the threads, and for a row whatever its batch mates. Fails only with kAborted and kOutOfMemory.
Status route(const RouteArgs& args, Exec& exec);

}  // namespace routerelay::cpu
