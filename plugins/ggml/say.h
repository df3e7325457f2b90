// SPDX-License-Identifier: Apache-2.0
// The plug-in's voice: one line on stderr. Hosts without a log of their own still show it.
#pragma once

#include <cstdio>
#include <string>

namespace routerelay::ggml {

inline void say(const std::string& text) {
  std::fprintf(stderr, "routerelay: %s\n", text.c_str());
}

}  // namespace routerelay::ggml
