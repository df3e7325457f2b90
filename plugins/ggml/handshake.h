// SPDX-License-Identifier: Apache-2.0
// Proves, before anything is registered, that the host's structures lie where layout.h says.
#pragma once

#include "host.h"
#include "routerelay/status.hpp"

namespace routerelay::ggml {

// Builds a small attention node without data and a CPU backend through the host's own constructors and reads
// both at our offsets. kUnsupported names version, member, expected and found value. `own` is any address in
// the plug-in, which the host's functions must not lie in.
Status shake_hands(Host& host, const void* own);

}  // namespace routerelay::ggml
