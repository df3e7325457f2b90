// SPDX-License-Identifier: Apache-2.0
#include "core/assert.h"

#if RR_ASSERTIONS

#include <cstdio>
#include <cstdlib>

namespace routerelay {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: routerelay: broken invariant, please report: %s\n", file, line, condition);
  std::abort();
}

}  // namespace routerelay

#endif
