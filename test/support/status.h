// SPDX-License-Identifier: Apache-2.0
// Status in tests: success prints its message when it is not one, errors are compared as golden strings.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "routerelay/status.hpp"

#define RR_ASSERT_OK(expr)                                               \
  do {                                                                   \
    const ::routerelay::Status rr_status = (expr);                       \
    ASSERT_TRUE(rr_status.ok()) << #expr << ": " << rr_status.message(); \
  } while (0)

namespace routerelay::support {

inline void expect_error(const Status& status, Code code, const std::string& message) {
  EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(code));
  EXPECT_EQ(status.message(), message);
}

}  // namespace routerelay::support
