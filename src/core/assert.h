// SPDX-License-Identifier: Apache-2.0
// RR_ASSERT(condition): an invariant of ours, checked in the dev, asan and tsan presets, not evaluated in any other
// build. What a caller can get wrong is a Status and never reaches one. Kernels have none: they are compiled with
// their instruction set's flags, and launch.cc asserts what it hands them.
#pragma once

#ifndef RR_ASSERTIONS
#define RR_ASSERTIONS 0
#endif

#if RR_ASSERTIONS

namespace routerelay {
// Says on stderr what broke where, and ends the program.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);
}  // namespace routerelay

#define RR_ASSERT(...) \
  ((__VA_ARGS__) ? void() : ::routerelay::assertion_failed(#__VA_ARGS__, __FILE__, __LINE__))

#else

// Names in it stay used, so that what only an assertion reads draws no warning.
#define RR_ASSERT(...) static_cast<void>(sizeof((__VA_ARGS__) ? 1 : 0))

#endif
