// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a question that long work asks: the command ends by itself and cleans up behind it.
#pragma once

#include <functional>

namespace routerelay::cli {

// From here on the first SIGINT or SIGTERM is remembered instead of ending the process; a second one ends it.
// The answer is what an engine's abort callback wants.
std::function<bool()> watch_interrupts();

}  // namespace routerelay::cli
