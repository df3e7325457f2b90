// SPDX-License-Identifier: Apache-2.0
// Borrowed threads: a pool on somebody else's team, and hosts without OpenMP.
#include "host_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "core/thread_pool.h"
#include "fake_ggml.h"

namespace routerelay::ggml {
namespace {

TEST(HostTeam, AHostWithoutOpenMpHasNone) {
  EXPECT_FALSE(host_team(fake_code()));
}

TEST(HostTeam, AnAddressInNoModuleHasNone) {
  EXPECT_FALSE(host_team(nullptr));
}

// A team of one thread fewer than asked for, as OpenMP may give.
Team short_team(int& calls) {
  return [&calls](int n, const std::function<void(int)>& fn) {
    ++calls;
    std::vector<std::thread> others;
    for (int i = 1; i + 1 < n; ++i) others.emplace_back(fn, i);
    fn(0);
    for (std::thread& t : others) t.join();
  };
}

TEST(HostTeam, APoolHandsEveryIndexToTheTeamOnce) {
  int calls = 0;
  ThreadPool pool(3);
  pool.set_team(short_team(calls));
  std::vector<std::atomic<int>> seen(1000);
  std::atomic<int> highest{0};
  ASSERT_TRUE(pool.run(1000,
                       [&](int thread, int64_t i) {
                         ++seen[static_cast<size_t>(i)];
                         if (thread > highest) highest = thread;
                       })
                  .ok());
  EXPECT_EQ(calls, 1);
  EXPECT_LT(highest, 2);
  for (const auto& n : seen) EXPECT_EQ(n, 1);
}

TEST(HostTeam, AnExceptionDoesNotReachTheTeam) {
  int calls = 0;
  ThreadPool pool(3);
  pool.set_team(short_team(calls));
  const Status status = pool.run(100, [](int, int64_t i) {
    if (i == 40) throw std::bad_alloc();
  });
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_TRUE(pool.run(100, [](int, int64_t) {}).ok());
}

}  // namespace
}  // namespace routerelay::ggml
