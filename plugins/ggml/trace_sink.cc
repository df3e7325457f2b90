// SPDX-License-Identifier: Apache-2.0
#include "trace_sink.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "say.h"

namespace routerelay::ggml {

void TraceSink::begin(std::string path, std::vector<int> layers) {
  const std::lock_guard lock(mutex_);
  path_ = std::move(path);
  layers_ = std::move(layers);
}

void TraceSink::add(const Request& request) {
  const std::lock_guard lock(mutex_);
  const bool chosen =
      layers_.empty() || std::find(layers_.begin(), layers_.end(), request.layer) != layers_.end();
  // A trace is one sequence of known layers.
  if (path_.empty() || !chosen || request.layer < 0 || request.sequences.size() != 1) return;
  if (const Status status = add_rows(request); !status.ok()) {
    say("trace: " + status.message());
    writer_.reset();
    path_.clear();
  }
}

Status TraceSink::add_rows(const Request& request) {
  const Sequence& s = request.sequences.front();
  if (!writer_) {
    Result<TraceWriter> made = TraceWriter::create(path_, {.scale = request.scale, .q_offset = s.q_offset});
    if (!made.ok()) return made.status();
    writer_.emplace(std::move(made).value());
    first_position_ = s.q_offset;
  }
  const int64_t have = writer_->rows(request.layer);
  if (first_position_ + have != s.q_offset) {  // another prompt has begun
    finish_locked();
    return {};
  }
  // The first rows of a layer bring the cached prefix along, later ones only what is new.
  const int64_t from = have == 0 ? 0 : s.k_len - s.q_len;
  RR_ASSERT(0 <= from && from <= s.k_len);
  const auto rows = [&](Tensor t) {
    t.data = t.at(s.k_begin + from, 0);
    t.tokens = s.k_len - from;
    return t;
  };
  return writer_->add_rows(request.layer, request.q, rows(request.k), rows(request.v), s.q_offset);
}

void TraceSink::finish() {
  const std::lock_guard lock(mutex_);
  finish_locked();
}

void TraceSink::finish_locked() {
  if (!writer_) return;
  if (const Status status = writer_->finish(); !status.ok()) say("trace: " + status.message());
  writer_.reset();
  path_.clear();
}

}  // namespace routerelay::ggml
