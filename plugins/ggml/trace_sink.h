// SPDX-License-Identifier: Apache-2.0
// ROUTERELAY_TRACE: writes the q, k and v of the first prompt that was taken, chosen layers only, as a trace.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "request.h"
#include "routerelay/trace.hpp"

namespace routerelay::ggml {

class TraceSink {
 public:
  // An empty path writes nothing; no layers means every layer.
  void begin(std::string path, std::vector<int> layers);
  // The next micro-batch of a layer, from the instance at `owner`: the first one that comes has the trace to itself. A
  // failure is said once and ends the trace; inference goes on.
  void add(const void* owner, const Request& request);
  // Completes the owner's file, if anything was added, and names chosen layers that never came. Later rows are not
  // traced.
  void finish(const void* owner);
  // At the process's end, when nothing can be added any more: a file that was never begun is said, too.
  void give_up();

 private:
  Status add_rows(const Request& request);
  void finish_locked();

  std::mutex mutex_;
  std::string path_;  // empty: nothing to do, or done
  std::vector<int> layers_;
  std::optional<TraceWriter> writer_;
  const void* owner_ = nullptr;  // of what `writer_` has
  int64_t first_position_ = 0;
};

}  // namespace routerelay::ggml
