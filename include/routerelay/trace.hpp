// SPDX-License-Identifier: Apache-2.0
// Traces: the q, k and v that a real model gave to chosen layers, in one safetensors file. docs/trace.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "routerelay/status.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay {

// What a trace says beside its tensors. One sequence: query i has position q_offset + i, key j position j.
struct TraceInfo {
  std::string model;     // a name for people; may be empty
  float scale = 0;       // of q.k; 0 means 1/sqrt(head_dim)
  int64_t q_offset = 0;  // position of the first query; a reader finds k.tokens == q_offset + q.tokens
  std::map<std::string, std::string> extra;  // any further metadata, kept as it is
};

// One traced layer, as attention saw it: after rotary embedding and norms.
struct TraceLayer {
  int layer = 0;  // index in the model
  Tensor q;       // [q_tokens, q_heads, head_dim]
  Tensor k;       // [q_offset + q_tokens, kv_heads, head_dim]; kv_heads divides q_heads
  Tensor v;       // as k, same dtype
};

// A trace mapped into memory, read only. Every field was checked when it was opened; the views are contiguous
// and live as long as the Trace. The file must not shrink meanwhile.
class Trace {
 public:
  // kInvalidArgument says what in the file is wrong, kDeviceError that it cannot be read. Memory: the header,
  // and a copy of those tensors that the file does not align to their element.
  static Result<Trace> open(const std::string& path);
  Trace(Trace&&) noexcept;
  Trace& operator=(Trace&&) noexcept;
  ~Trace();

  const TraceInfo& info() const;
  std::span<const TraceLayer> layers() const;  // at least one, ascending by `layer`
  const TraceLayer* find(int layer) const;     // nullptr when that layer was not traced

 private:
  struct Impl;
  explicit Trace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Writes a trace in pieces. Rows wait in an unnamed file beside the target, so memory does not grow with the
// prompt; the target appears complete, at finish, or not at all. One thread at a time.
class TraceWriter {
 public:
  // Fails with kDeviceError when the folder cannot be written. An existing target stays until finish.
  static Result<TraceWriter> create(const std::string& path, TraceInfo info);
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;
  ~TraceWriter();  // without finish: leaves nothing

  // A whole layer, whose last query sits at its last key. Any strides whose last is 1; the dtype is kept.
  Status add_layer(int layer, const Tensor& q, const Tensor& k, const Tensor& v);
  // The next rows of `layer`: `position` is that of the first query, and the last key sits with the last
  // query. The first call may bring more keys than queries (a cached prefix); it then sets q_offset. Later
  // calls go on where the layer stopped, with the same heads and dtypes. On an error nothing of the call is
  // kept.
  Status add_rows(int layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t position);
  // Queries that `layer` holds so far.
  int64_t rows(int layer) const;
  // Every layer must hold the same queries. Writes beside the target, syncs and renames; once only.
  Status finish();

 private:
  struct Impl;
  explicit TraceWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace routerelay
