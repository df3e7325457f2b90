// SPDX-License-Identifier: Apache-2.0
// What was settled once, when the host loaded the plug-in, and what every part reads from then on.
#pragma once

#include "core/env.h"
#include "host.h"
#include "routerelay/engine.hpp"
#include "supports.h"

namespace routerelay::ggml {

struct Plugin {
  Env env;
  Host host;
  Claims claims;
  Team team;  // the host's own threads, where it has some to share
};

}  // namespace routerelay::ggml
