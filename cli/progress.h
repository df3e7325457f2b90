// SPDX-License-Identifier: Apache-2.0
// One line on a terminal's stderr for work longer than two seconds, rewritten in place and wiped at the end.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace routerelay::cli {

class Progress {
 public:
  // `shown`: stderr is a terminal. Otherwise every call does nothing.
  explicit Progress(bool shown) : shown_(shown) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const std::string& what, double done);  // done: 0 .. 1
  void clear();
  std::function<void(const std::string&, double)> callback() {
    return [this](const std::string& what, double done) { update(what, done); };
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool shown_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
};

}  // namespace routerelay::cli
