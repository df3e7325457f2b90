// SPDX-License-Identifier: Apache-2.0
// What must be so for the soak to go on at all; what it looks for is reported, not needed.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace routerelay::soak {

inline void need(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "soak: %s\n", what);
  std::exit(1);
}

}  // namespace routerelay::soak
