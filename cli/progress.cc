// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace routerelay::cli {
namespace {

constexpr std::chrono::seconds kQuietTime{2};
constexpr std::chrono::milliseconds kRedraw{100};  // oftener only flickers
constexpr size_t kWidth = 60;                      // of `what`, so that a line fits 80 columns

}  // namespace

void Progress::update(const std::string& what, double done) {
  const auto now = Clock::now();
  if (!shown_ || now - start_ < kQuietTime || (drawn_ && now - last_ < kRedraw)) return;
  last_ = now;
  drawn_ = true;
  fmt::print(stderr, "\r\x1b[K{:3.0f} %  {}", 100 * std::clamp(done, 0.0, 1.0), what.substr(0, kWidth));
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace routerelay::cli
