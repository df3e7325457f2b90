// SPDX-License-Identifier: Apache-2.0
// The registry entry, its one device and the backend instances, as the host's tables of functions.
#pragma once

#include "layout.h"
#include "plugin.h"

namespace routerelay::ggml {

// The same static entry on every call: hosts tell duplicates by this address. `plugin` must live for ever.
Registry* registry_entry(const Plugin& plugin);

}  // namespace routerelay::ggml
