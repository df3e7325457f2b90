// SPDX-License-Identifier: Apache-2.0
// The plug-in's voice: one line on stderr. Hosts without a log of their own still show it.
#pragma once

#include <cstdio>
#include <string>

namespace routerelay::ggml {

// Allocates nothing: also for who ran out of memory.
inline void say(const char* text, const char* more = "") noexcept {
  std::fprintf(stderr, "routerelay: %s%s\n", text, more);
}

inline void say(const std::string& text) noexcept {
  say(text.c_str());
}

}  // namespace routerelay::ggml
