// SPDX-License-Identifier: Apache-2.0
// What a stage runs on: threads, instruction set, workspace and the caller's wish to stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/assert.h"
#include "core/thread_pool.h"
#include "routerelay/engine.hpp"

namespace routerelay {

// A cache line: what scratch, and whatever kernels pack into it, is aligned to.
inline constexpr int64_t kScratchAlign = 64;
inline bool is_aligned(const std::byte* p) {
  return reinterpret_cast<uintptr_t>(p) % kScratchAlign == 0;
}

// Grow-only, 64-byte aligned scratch: one buffer shared by all threads and one per thread. Content is
// undefined after every call that may grow it.
class Workspace {
 public:
  // nullptr when the memory cannot be had.
  std::byte* shared(int64_t bytes) { return grow(shared_, bytes); }
  // Call before the parallel part: growing is not thread-safe.
  bool reserve_threads(int threads, int64_t bytes_each);
  std::byte* thread(int idx) const {
    RR_ASSERT(idx >= 0 && idx < static_cast<int>(threads_.size()) && threads_[static_cast<size_t>(idx)].data);
    return threads_[static_cast<size_t>(idx)].data.get();
  }
  int64_t bytes() const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  struct Buffer {
    std::unique_ptr<std::byte, Free> data;
    int64_t bytes = 0;
  };
  static std::byte* grow(Buffer& buffer, int64_t bytes);
  Buffer shared_;
  std::vector<Buffer> threads_;
};

struct Exec {
  ThreadPool& pool;
  Isa isa = Isa::kScalar;
  Workspace& workspace;
  std::function<bool()> abort;  // may be empty

  int threads() const { return pool.threads(); }
  // Runs fn(thread, i) for i in [0, n), next index to whoever is free; kAborted when the caller wished to
  // stop.
  Status for_each(int64_t n, const std::function<void(int, int64_t)>& fn);
};

}  // namespace routerelay
