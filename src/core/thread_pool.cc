// SPDX-License-Identifier: Apache-2.0
#include "core/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/assert.h"

namespace routerelay {

struct ThreadPool::Impl {
  int threads = 1;
  Team team;
  const pid_t process = ::getpid();
  std::vector<std::thread> workers;  // of that process: a fork takes none along
  std::mutex mutex;
  std::condition_variable wake, done;
  uint64_t generation = 0;  // counts runs: a worker sleeps until it changes
  int taking_part = 0;      // workers with an index below this join the run
  int running = 0;
  bool quit = false;

  const std::function<void(int, int64_t)>* fn = nullptr;
  int64_t n = 0;
  std::atomic<int64_t> next{0};
  std::exception_ptr error;  // the first one, under mutex

  void drain(int thread) {
    try {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) (*fn)(thread, i);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next.store(n, std::memory_order_relaxed);
    }
  }

  void run_workers(int helpers);
  void work(int idx) {
    std::unique_lock lock(mutex);
    for (uint64_t seen = 0;;) {
      wake.wait(lock, [&] { return quit || generation != seen; });
      if (quit) return;
      seen = generation;
      if (idx >= taking_part) continue;
      RR_ASSERT(idx + 1 < threads && fn != nullptr);
      lock.unlock();
      drain(idx + 1);
      lock.lock();
      if (--running == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  set_threads(threads);
}

// What a forked process has of its parent's pool waits for threads that are not there, its destructor too.
ThreadPool::Impl& ThreadPool::here() {
  if (impl_->process != ::getpid()) {
    auto mine = std::make_unique<Impl>();
    mine->threads = impl_->threads;
    mine->team = impl_->team;
    static_cast<void>(impl_.release());
    impl_ = std::move(mine);
  }
  return *impl_;
}

ThreadPool::~ThreadPool() {
  if (impl_->process != ::getpid()) {
    static_cast<void>(impl_.release());
    return;
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->quit = true;
  }
  impl_->wake.notify_all();
  for (std::thread& t : impl_->workers) t.join();
}

int ThreadPool::threads() const {
  return impl_->threads;
}
void ThreadPool::set_threads(int threads) {
  impl_->threads = std::max(1, threads);
}

void ThreadPool::set_team(Team team) {
  impl_->team = std::move(team);
}

void ThreadPool::Impl::run_workers(int helpers) {
  {
    std::unique_lock lock(mutex);
    try {
      while (static_cast<int>(workers.size()) < helpers) {
        const int idx = static_cast<int>(workers.size());
        // A late starter must not mistake an old run for news: it starts from generation 0 and finds
        // itself outside taking_part unless this run counts on it.
        workers.emplace_back([this, idx] { work(idx); });
      }
    } catch (const std::system_error&) {
      // Fewer threads than asked for still do all the work.
    }
    taking_part = std::min(helpers, static_cast<int>(workers.size()));
    running = taking_part;
    if (taking_part > 0) ++generation;
  }
  wake.notify_all();
  drain(0);
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return running == 0; });
  RR_ASSERT(next.load(std::memory_order_relaxed) >= n);
}

Status ThreadPool::run(int64_t n, const std::function<void(int, int64_t)>& fn) {
  if (n <= 0) return {};
  Impl& p = here();
  const int helpers = static_cast<int>(std::min<int64_t>(p.threads, n)) - 1;
  p.fn = &fn;
  p.n = n;
  p.next.store(0, std::memory_order_relaxed);
  p.error = nullptr;
  if (p.team && helpers > 0)
    p.team(helpers + 1, [&p](int thread) { p.drain(thread); });
  else
    p.run_workers(helpers);
  if (!p.error) return {};
  try {
    std::rethrow_exception(p.error);
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory, "layer: memory for scratch could not be had; free some or shorten the chunk"};
  } catch (const std::exception& e) {
    return {Code::kInternal, std::string("layer: ") + e.what()};
  }
}

}  // namespace routerelay
