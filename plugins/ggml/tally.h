// SPDX-License-Identifier: Apache-2.0
// What the plug-in did in this process: calls taken, declined and delegated by reason, blocks and seconds.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "reason.h"
#include "routerelay/report.hpp"

namespace routerelay::ggml {

// What a report says beside its counts.
struct TallyHead {
  std::string backend, isa, ggml_version;
  int32_t api = 0;
};

class Tally {
 public:
  // `target`: empty reports nothing, "1" a text on stderr, anything else is a file that gets one JSON object.
  void begin(TallyHead head, std::string target);
  // What micro-batches go by that begin from now on.
  void goes_by(std::string preset);
  // A host made an instance: if it then takes no call for no good reason, that is said at the end.
  void serves() { serves_.store(true, std::memory_order_relaxed); }
  // supports_op's answer; kNone claims the call. Questions are no calls: hosts ask while they make a context, and
  // several times for one call.
  void asked(Reason answer) { answers_[static_cast<size_t>(answer)].fetch_add(1, std::memory_order_relaxed); }
  // A claimed call was left to the host. The first message of kEngine is kept, and said once.
  void delegated(Reason reason, const std::string& message);
  // A claimed call was computed by `preset`. Counts of several are not kept apart: the report names them all.
  void taken(const std::string& preset, const LayerReport& layer, int64_t query_rows, int threads,
             double seconds);
  // Writes what is counted so far: a file whole or not at all, the text once. While calls come, the file is also
  // written after micro-batches, a few times a second: whoever looks at it sees a prompt's progress.
  void flush(bool at_exit);
  // The report so far, one JSON object and a line break.
  std::string json();

 private:
  Report sums() const;
  std::string to_json() const;
  std::string to_text() const;
  int64_t questions() const;
  // Why no call came, where the reason is none that passes by itself; else empty.
  std::string why_idle() const;
  // Of calls; before the first one, of now.
  std::string presets() const;
  // Makes the text under `mutex_` and writes it outside, so that no counting thread waits for a disk. `writing` holds
  // `writing_`; where it does not, another thread is writing, and a later call writes what this one counted.
  void write(const std::unique_lock<std::mutex>& writing);
  // Whether the file was written longer ago; under `mutex_`.
  bool is_older(std::chrono::milliseconds age) const;

  std::mutex writing_;         // one writer at a time; taken before `mutex_`
  bool failure_said_ = false;  // guarded by `writing_`
  std::mutex mutex_;           // guards all below
  TallyHead head_;
  std::string now_;                   // what the next micro-batch goes by
  std::vector<std::string> presets_;  // that calls went by, in the order of their first; at most kMostPresets
  std::string target_;
  std::atomic<bool> serves_{false};
  std::array<std::atomic<int64_t>, kReasons> answers_{};
  std::array<int64_t, kReasons> delegated_{};
  std::string engine_message_;
  int64_t calls_ = 0, query_rows_ = 0;
  double seconds_ = 0;
  int threads_ = 0;
  std::map<int, LayerReport> layers_;  // summed over calls, by layer index
  std::map<int, int64_t> layer_calls_;
  std::chrono::steady_clock::time_point written_;
};

// One per process, never destroyed: the host may count until the very end.
Tally& tally();

}  // namespace routerelay::ggml
