// SPDX-License-Identifier: Apache-2.0
// The pool: every index once, on legal thread numbers, whatever is thrown; and Exec's abort and scratch on top of it.
#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <vector>

#include "support/exec.h"
#include "support/status.h"

namespace routerelay {
namespace {

TEST(ThreadPool, RunsEveryIndexOnceForAnyCountAndThreads) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(n));
      std::atomic<int> bad_thread{0};
      RR_ASSERT_OK(pool.run(n, [&](int thread, int64_t i) {
        times[static_cast<size_t>(i)].fetch_add(1);
        if (thread < 0 || thread >= threads) bad_thread.fetch_add(1);
      }));
      for (const auto& t : times) EXPECT_EQ(t.load(), 1) << threads << " threads, n " << n;
      EXPECT_EQ(bad_thread.load(), 0);
    }
  }
}

TEST(ThreadPool, NoTwoIndicesShareAThreadAtOnce) {
  ThreadPool pool(4);
  std::array<std::atomic<int>, 4> busy{};
  std::atomic<int> collisions{0};
  RR_ASSERT_OK(pool.run(2000, [&](int thread, int64_t) {
    if (busy[static_cast<size_t>(thread)].fetch_add(1) != 0) collisions.fetch_add(1);
    busy[static_cast<size_t>(thread)].fetch_sub(1);
  }));
  EXPECT_EQ(collisions.load(), 0);
}

TEST(ThreadPool, ThreadCountMayChangeBetweenManySmallRuns) {
  ThreadPool pool(1);
  std::atomic<int64_t> sum{0};
  for (int run = 0; run < 2000; ++run) {
    pool.set_threads(1 + run % 5);
    RR_ASSERT_OK(pool.run(run % 7, [&](int, int64_t i) { sum.fetch_add(i + 1); }));
  }
  int64_t want = 0;
  for (int run = 0; run < 2000; ++run) want += (run % 7) * (run % 7 + 1) / 2;
  EXPECT_EQ(sum.load(), want);
}

TEST(ThreadPool, AnExceptionBecomesAStatusAndThePoolLivesOn) {
  ThreadPool pool(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    support::expect_error(pool.run(100,
                                   [&](int, int64_t i) {
                                     if (i == 40) throw std::runtime_error("row 40");
                                   }),
                          Code::kInternal, "layer: row 40");
    const Status full = pool.run(100, [&](int, int64_t i) {
      if (i % 10 == 3) throw std::bad_alloc();
    });
    EXPECT_EQ(full.code(), Code::kOutOfMemory);
    std::atomic<int> done{0};
    RR_ASSERT_OK(pool.run(100, [&](int, int64_t) { done.fetch_add(1); }));
    EXPECT_EQ(done.load(), 100);
  }
}

TEST(ThreadPool, AnExceptionOnOneThreadStopsTheRest) {
  ThreadPool pool(1);
  int started = 0;
  const Status status = pool.run(1000, [&](int, int64_t) {
    ++started;
    throw std::runtime_error("first");
  });
  EXPECT_EQ(status.message(), "layer: first");
  EXPECT_EQ(started, 1);
}

TEST(ThreadPool, FewerThreadsThanOneAreOne) {
  ThreadPool pool(0);
  EXPECT_EQ(pool.threads(), 1);
  pool.set_threads(-3);
  EXPECT_EQ(pool.threads(), 1);
}

TEST(Exec, AbortStopsAndSaysSo) {
  for (int threads : {1, 3}) {
    support::TestExec t(threads);
    int asked = 0;
    t.exec.abort = [&] { return ++asked > 3; };
    std::atomic<int> done{0};
    support::expect_error(t.exec.for_each(1 << 20, [&](int, int64_t) { done.fetch_add(1); }), Code::kAborted,
                          "layer: stopped by the caller's abort callback");
    EXPECT_LT(done.load(), 1 << 20);
    EXPECT_EQ(asked, 4);
  }
}

TEST(ThreadPool, AForkedProcessHasWorkersOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a forked process that starts threads";
#endif
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  const auto add = [&](int, int64_t i) { sum.fetch_add(i); };
  RR_ASSERT_OK(pool.run(100, add));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // where it hangs
    {
      ThreadPool local(2);
      bool right = local.run(100, add).ok() && pool.run(100, add).ok() && pool.threads() == 3;
      if (!right || sum.load() != 3 * 4950) ::_exit(1);
    }
    pool.~ThreadPool();
    ::_exit(0);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
  RR_ASSERT_OK(pool.run(100, add));
  EXPECT_EQ(sum.load(), 2 * 4950);
}

TEST(Exec, WorkspaceIsAlignedAndGrows) {
  Workspace w;
  EXPECT_EQ(w.bytes(), 0);
  for (int64_t bytes : {1, 64, 1000, 10}) {
    std::byte* p = w.shared(bytes);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  }
  EXPECT_EQ(w.bytes(), 1024);  // grown to 1000, rounded up; 10 fits
  ASSERT_TRUE(w.reserve_threads(3, 100));
  EXPECT_EQ(w.bytes(), 1024 + 3 * 128);
  EXPECT_NE(w.thread(0), w.thread(2));
  constexpr int64_t kHugePage = 2 << 20;  // from two of them on, memory begins with one
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w.shared(2 * kHugePage + 1)) % kHugePage, 0u);
  EXPECT_EQ(w.bytes(), 2 * kHugePage + 64 + 3 * 128);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process instead
  EXPECT_FALSE(w.reserve_threads(1, int64_t{1} << 62));
#endif
}

}  // namespace
}  // namespace routerelay
