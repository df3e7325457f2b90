// SPDX-License-Identifier: Apache-2.0
// Threads behind one call: run(n, fn) hands indices to whoever is free. The caller works too, as thread 0.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "routerelay/engine.hpp"
#include "routerelay/status.hpp"

namespace routerelay {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // starts nothing: workers start at the first run that needs them
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  void set_threads(int threads);  // from the next run on
  void set_team(Team team);       // the caller's threads instead of workers; empty: workers

  // fn(thread, i) for i in [0, n), each i once, in ascending order of start. Blocks until all are done. An
  // exception in fn ends the run: bad_alloc comes back as kOutOfMemory, any other as kInternal. One run at a
  // time. After a fork the child has workers of its own, if no run was under way.
  Status run(int64_t n, const std::function<void(int thread, int64_t i)>& fn);

 private:
  struct Impl;
  Impl& here();  // of this process
  std::unique_ptr<Impl> impl_;
};

}  // namespace routerelay
