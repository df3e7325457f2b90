// SPDX-License-Identifier: Apache-2.0
#include "core/exec.h"

#include <sys/mman.h>

#include <cstdlib>

namespace routerelay {

void Workspace::Free::operator()(std::byte* p) const {
  std::free(p);
}

std::byte* Workspace::grow(Buffer& buffer, int64_t bytes) {
  RR_ASSERT(bytes >= 0);
  if (bytes > buffer.bytes || !buffer.data) {
    const size_t rounded = (static_cast<size_t>(bytes < 64 ? 64 : bytes) + 63) / 64 * 64;
    buffer.data.reset();  // freed first: old and new need not fit side by side
    // Routes jump between the panels of a packed head, which on 4 KiB pages also misses the TLB (4 and 14 % of attend
    // at 10 % density in two runs, docs/kernel/cpu-attend.md). Where the kernel declines, the memory works as before.
    constexpr size_t kHugePage = size_t{2} << 20;
    const bool huge = rounded >= 2 * kHugePage;
    // Not aligned_alloc: its size must be a multiple of the alignment.
    void* data = nullptr;
    if (posix_memalign(&data, huge ? kHugePage : size_t{kScratchAlign}, rounded) == 0)
      buffer.data.reset(static_cast<std::byte*>(data));
    if (huge && buffer.data) madvise(buffer.data.get(), rounded, MADV_HUGEPAGE);
    buffer.bytes = buffer.data ? static_cast<int64_t>(rounded) : 0;
  }
  return buffer.data.get();
}

bool Workspace::reserve_threads(int threads, int64_t bytes_each) {
  if (threads_.size() < static_cast<size_t>(threads)) threads_.resize(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i)
    if (!grow(threads_[static_cast<size_t>(i)], bytes_each)) return false;
  return true;
}

int64_t Workspace::bytes() const {
  int64_t total = shared_.bytes;
  for (const Buffer& b : threads_) total += b.bytes;
  return total;
}

Status Exec::for_each(int64_t n, const std::function<void(int, int64_t)>& fn) {
  // Asked before the work is shared out too: the others may be through with it before the calling thread's turn.
  std::atomic<bool> stopped{abort && abort()};
  RR_TRY(pool.run(n, [&](int thread, int64_t i) {
    if (stopped.load(std::memory_order_relaxed)) return;
    // The callback belongs to the caller and need not be thread-safe: only the calling thread asks.
    if (thread == 0 && abort && abort()) {
      stopped.store(true, std::memory_order_relaxed);
      return;
    }
    fn(thread, i);
  }));
  if (stopped.load()) return {Code::kAborted, "layer: stopped by the caller's abort callback"};
  return {};
}

}  // namespace routerelay
