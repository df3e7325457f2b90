// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace routerelay::cli {
namespace {

std::atomic<bool> g_interrupted{false};  // a signal handler reaches nothing but globals
static_assert(std::atomic<bool>::is_always_lock_free, "a lock in a signal handler may never come free");

void remember(int) {
  g_interrupted.store(true, std::memory_order_relaxed);
}

}  // namespace

std::function<bool()> watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return [] { return g_interrupted.load(std::memory_order_relaxed); };
}

}  // namespace routerelay::cli
