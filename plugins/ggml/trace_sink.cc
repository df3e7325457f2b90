// SPDX-License-Identifier: Apache-2.0
#include "trace_sink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/assert.h"
#include "core/convert.h"
#include "say.h"

namespace routerelay::ggml {

namespace {

// Keys or values as a trace can hold them: q8_0 as f16, in `storage`. It rounds off 2^-12 of an element, a sixteenth
// of what q8_0 rounded off before.
Tensor writable(const Tensor& t, std::vector<std::byte>& storage) {
  if (t.dtype != DType::kQ8_0) return t;
  storage.resize(static_cast<size_t>(bytes_of(DType::kF16, t.tokens * t.heads * t.head_dim)));
  const MutableTensor copy =
      contiguous(static_cast<void*>(storage.data()), DType::kF16, t.tokens, t.heads, t.head_dim);
  for (int64_t token = 0; token < t.tokens; ++token)
    for (int64_t head = 0; head < t.heads; ++head)
      for (int64_t c = 0; c < t.head_dim; ++c)
        store_f32(copy.at(token, head), copy.dtype, c, load_f32(t.at(token, head), t.dtype, c));
  return copy;
}

}  // namespace

void TraceSink::begin(std::string path, std::vector<int> layers) {
  const std::lock_guard lock(mutex_);
  path_ = std::move(path);
  layers_ = std::move(layers);
}

void TraceSink::add(const void* owner, const Request& request) {
  const std::lock_guard lock(mutex_);
  if (writer_ && owner != owner_) return;
  const bool chosen =
      layers_.empty() || std::find(layers_.begin(), layers_.end(), request.layer) != layers_.end();
  // A trace is one sequence of known layers.
  if (path_.empty() || !chosen || request.layer < 0 || request.sequences.size() != 1) return;
  Status status;
  try {
    owner_ = owner;
    status = add_rows(request);
  } catch (const std::bad_alloc&) {
    status = {Code::kOutOfMemory, "there is no memory for its rows"};
  }
  if (status.ok()) return;
  say("trace: " + status.message());
  writer_.reset();
  path_.clear();
}

Status TraceSink::add_rows(const Request& request) {
  const Sequence& s = request.sequences.front();
  if (!writer_) {
    Result<TraceWriter> made = TraceWriter::create(path_, {.scale = request.scale, .q_offset = s.q_offset});
    if (!made.ok()) return made.status();
    writer_.emplace(std::move(made).value());
    first_position_ = s.q_offset;
    if (request.k.dtype == DType::kQ8_0) say("trace: q8_0 keys and values are written as f16");
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
  std::vector<std::byte> k, v;
  return writer_->add_rows(request.layer, request.q, writable(rows(request.k), k),
                           writable(rows(request.v), v), s.q_offset);
}

void TraceSink::finish(const void* owner) {
  const std::lock_guard lock(mutex_);
  if (owner == owner_) finish_locked();
}

void TraceSink::give_up() {
  const std::lock_guard lock(mutex_);
  finish_locked();
  if (path_.empty()) return;
  say(fmt::format("trace: '{}' was not written: no prompt of one sequence{} was taken", path_,
                  layers_.empty() ? "" : fmt::format(" in layers {}", fmt::join(layers_, ","))));
  path_.clear();
}

void TraceSink::finish_locked() {
  if (!writer_) return;
  std::vector<int> missing;
  for (const int layer : layers_)
    if (writer_->rows(layer) == 0) missing.push_back(layer);
  if (!missing.empty())
    say(fmt::format("trace: ROUTERELAY_TRACE_LAYERS names {}, which no call had", fmt::join(missing, ",")));
  if (const Status status = writer_->finish(); !status.ok()) say("trace: " + status.message());
  writer_.reset();
  path_.clear();
}

}  // namespace routerelay::ggml
