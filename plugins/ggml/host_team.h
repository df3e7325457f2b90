// SPDX-License-Identifier: Apache-2.0
// The host's own threads. A host built with OpenMP leaves its workers spinning for milliseconds after each part
// of a graph: threads of ours would share the cores with them, so we run on those workers instead.
#pragma once

#include "routerelay/engine.hpp"

namespace routerelay::ggml {

// A team of the GNU OpenMP runtime that the module with `host_code` uses; empty when it uses none.
Team host_team(const void* host_code);

}  // namespace routerelay::ggml
