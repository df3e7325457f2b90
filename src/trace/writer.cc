// SPDX-License-Identifier: Apache-2.0
// Writes a trace: rows of many layers arrive interleaved, wait in an unnamed file, and are laid out layer by layer at
// finish.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "core/assert.h"
#include "routerelay/trace.hpp"
#include "trace/file.h"
#include "trace/header.h"

namespace routerelay {
namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 20;  // per write: large enough that calls do not count

struct Extent {
  int64_t offset = 0;  // in the spool
  int64_t bytes = 0;
};

// One tensor on its way: what it is, and where its rows wait.
struct Part {
  DType dtype = DType::kF32;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  std::vector<Extent> extents;
};

struct LayerParts {
  std::array<Part, 3> parts;  // q, k, v
  int64_t q_offset = 0;
};
constexpr std::array<char, 3> kPartNames = {'q', 'k', 'v'};

Status invalid(int layer, const std::string& what) {
  return {Code::kInvalidArgument, fmt::format("trace: layer {}: {}", layer, what)};
}

Status check_tensor(int layer, char name, const Tensor& t) {
  if (t.tokens < 0 || t.heads < 1 || t.heads > kMaxHeads || t.head_dim < 1 || t.head_dim > kMaxHeadDim)
    return invalid(layer, fmt::format("{} is [{}, {}, {}]; legal: tokens from 0, heads 1..{}, head_dim 1..{}",
                                      name, t.tokens, t.heads, t.head_dim, kMaxHeads, kMaxHeadDim));
  if (t.dtype > DType::kF16)
    return invalid(layer, fmt::format("{} is {}; a trace holds f32, bf16 or f16: convert it", name,
                                      dtype_name(t.dtype)));
  if (!t.data && t.tokens > 0) return invalid(layer, fmt::format("{}.data is null", name));
  return {};
}

Status check_rows(int layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t position) {
  if (layer < 0 || layer > kMaxLayer) return invalid(layer, fmt::format("legal: 0..{}", kMaxLayer));
  RR_TRY(check_tensor(layer, 'q', q));
  RR_TRY(check_tensor(layer, 'k', k));
  RR_TRY(check_tensor(layer, 'v', v));
  if (k.tokens != v.tokens || k.heads != v.heads || k.head_dim != v.head_dim || k.dtype != v.dtype)
    return invalid(layer, "k and v differ in shape or dtype; expected the same");
  if (q.head_dim != k.head_dim || q.heads % k.heads != 0)
    return invalid(
        layer, fmt::format("q has {} heads of {}, k {} of {}; expected one head_dim, and kv_heads dividing "
                           "q_heads",
                           q.heads, q.head_dim, k.heads, k.head_dim));
  if (position < 0) return invalid(layer, fmt::format("position is {}; legal: from 0", position));
  return {};
}

// Rows that go on where the layer stopped, in the same form; an empty layer takes any form.
Status check_continues(int layer, const LayerParts& parts, const std::array<const Tensor*, 3>& rows,
                       int64_t position) {
  const int64_t keys = parts.parts[1].tokens;
  // Differences of numbers from 0: unlike sums, they cannot overflow.
  if (position - keys != rows[1]->tokens - rows[0]->tokens)
    return invalid(
        layer, fmt::format("{} queries from position {}, and {} keys behind the {} held; the last key sits "
                           "with the last query",
                           rows[0]->tokens, position, rows[1]->tokens, keys));
  if (parts.parts[0].heads == 0) return {};
  if (position != parts.q_offset + parts.parts[0].tokens)
    return invalid(layer, fmt::format("rows from position {}; the next is {}", position,
                                      parts.q_offset + parts.parts[0].tokens));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Part& held = parts.parts[i];
    const Tensor& t = *rows[i];
    if (held.dtype != t.dtype || held.heads != t.heads || held.head_dim != t.head_dim)
      return invalid(layer, fmt::format("{} rows are {} of {} heads of {}, before {} of {} of {}",
                                        kPartNames[i], dtype_name(t.dtype), t.heads, t.head_dim,
                                        dtype_name(held.dtype), held.heads, held.head_dim));
  }
  return {};
}

}  // namespace

struct TraceWriter::Impl {
  std::string path;
  TraceInfo info;
  File spool;
  int64_t spool_bytes = 0;
  std::map<int, LayerParts> layers;
  std::vector<std::byte> buffer;
  bool finished = false;

  Status open();
  Status add_rows(int layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t position);
  Status spool_rows(const Tensor& t, int64_t offset);
  Result<Header> layout() const;
  Status copy_out(const Header& header, const File& file);
  Status finish();
};

Status TraceWriter::Impl::open() {
  for (const char* key : {"format", "version", "model", "scale", "q_offset"})
    if (info.extra.count(key))
      return {Code::kInvalidArgument,
              fmt::format("trace: extra metadata \"{}\" is a name of the format", key)};
  if (!(info.scale >= 0 && info.scale < HUGE_VALF))
    return {Code::kInvalidArgument, fmt::format("trace: scale is {}; legal: finite, from 0", info.scale)};
  struct stat old {};
  if (::stat(path.c_str(), &old) == 0 && !S_ISREG(old.st_mode))
    return {Code::kInvalidArgument, "trace: " + path + " exists and is not a regular file"};
  Result<Sibling> sibling = create_sibling(path);
  if (!sibling.ok()) return {sibling.status().code(), "trace: " + sibling.status().message()};
  // Without a name nothing is left behind, whatever ends the process.
  ::unlink(sibling->path.c_str());
  spool = std::move(sibling->file);
  buffer.resize(static_cast<size_t>(kBufferBytes));
  return {};
}

Status TraceWriter::Impl::add_rows(int layer, const Tensor& q, const Tensor& k, const Tensor& v,
                                   int64_t position) {
  if (finished) return invalid(layer, "the trace was finished before");
  RR_TRY(check_rows(layer, q, k, v, position));
  const auto it = layers.find(layer);
  LayerParts parts = it == layers.end() ? LayerParts{} : it->second;
  const std::array<const Tensor*, 3> rows = {&q, &k, &v};
  RR_TRY(check_continues(layer, parts, rows, position));
  if (parts.parts[0].heads == 0) parts.q_offset = position;
  int64_t end = spool_bytes;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Tensor& t = *rows[i];
    const int64_t bytes = bytes_of(t.dtype, t.tokens * t.heads * t.head_dim);
    const Status status = spool_rows(t, end);
    if (!status.ok()) return {status.code(), fmt::format("trace: {}: {}", path, status.message())};
    Part& part = parts.parts[i];
    part.dtype = t.dtype;
    part.tokens += t.tokens;
    part.heads = t.heads;
    part.head_dim = t.head_dim;
    part.extents.push_back({end, bytes});
    end += bytes;
  }
  layers[layer] = std::move(parts);
  spool_bytes = end;
  return {};
}

// Packs strided rows through the buffer, so that the spool holds them contiguous.
Status TraceWriter::Impl::spool_rows(const Tensor& t, int64_t offset) {
  const int64_t head_bytes = bytes_of(t.dtype, t.head_dim);
  RR_ASSERT(head_bytes <= kBufferBytes);
  int64_t filled = 0;
  for (int64_t token = 0; token < t.tokens; ++token) {
    for (int64_t head = 0; head < t.heads; ++head) {
      if (filled + head_bytes > kBufferBytes) {
        RR_TRY(write_at(spool, buffer.data(), filled, offset));
        offset += filled;
        filled = 0;
      }
      std::memcpy(buffer.data() + filled, t.at(token, head), static_cast<size_t>(head_bytes));
      filled += head_bytes;
    }
  }
  return write_at(spool, buffer.data(), filled, offset);
}

Result<Header> TraceWriter::Impl::layout() const {
  if (layers.empty()) return Status(Code::kInvalidArgument, "trace: no layer was added");
  const auto& [first_layer, first] = *layers.begin();
  Header header;
  header.metadata = info.extra;
  header.metadata["format"] = "routerelay-trace";
  header.metadata["version"] = "1";
  header.metadata["model"] = info.model;
  header.metadata["scale"] = fmt::format("{}", info.scale);
  header.metadata["q_offset"] = fmt::format("{}", first.q_offset);
  int64_t at = 0;
  for (const auto& [layer, parts] : layers) {
    if (parts.q_offset != first.q_offset || parts.parts[0].tokens != first.parts[0].tokens)
      return invalid(layer,
                     fmt::format("{} queries from position {}, layer {} has {} from {}; expected the same",
                                 parts.parts[0].tokens, parts.q_offset, first_layer, first.parts[0].tokens,
                                 first.q_offset));
    for (size_t i = 0; i < parts.parts.size(); ++i) {
      const Part& p = parts.parts[i];
      const int64_t bytes = bytes_of(p.dtype, p.tokens * p.heads * p.head_dim);
      header.tensors.push_back(
          {layer, kPartNames[i], p.dtype, {p.tokens, p.heads, p.head_dim}, at, at + bytes});
      at += bytes;
    }
  }
  return header;
}

Status TraceWriter::Impl::copy_out(const Header& header, const File& file) {
  const std::string text = format_header(header);
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes)
    return {Code::kInvalidArgument,
            fmt::format("the header takes {} bytes; legal: up to {}", text.size(), kMaxHeaderBytes)};
  const uint64_t length = text.size();
  RR_TRY(write_at(file, reinterpret_cast<const std::byte*>(&length), sizeof length, 0));
  int64_t at = sizeof length;
  RR_TRY(write_at(file, reinterpret_cast<const std::byte*>(text.data()), static_cast<int64_t>(length), at));
  at += static_cast<int64_t>(length);
  for (const auto& [_, parts] : layers) {
    for (const Part& part : parts.parts) {
      for (Extent e : part.extents) {
        for (int64_t done = 0; done < e.bytes;) {
          const int64_t piece = std::min(kBufferBytes, e.bytes - done);
          RR_TRY(read_at(spool, buffer.data(), piece, e.offset + done));
          RR_TRY(write_at(file, buffer.data(), piece, at));
          done += piece;
          at += piece;
        }
      }
    }
  }
  RR_ASSERT(at == static_cast<int64_t>(sizeof length + length) + header.tensors.back().end);
  if (::fsync(file.fd()) != 0) return system_error("sync");
  return {};
}

Status TraceWriter::Impl::finish() {
  if (finished) return {Code::kInvalidArgument, "trace: the trace was finished before"};
  const Result<Header> header = layout();
  if (!header.ok()) return header.status();
  Result<Sibling> sibling = create_sibling(path);
  if (!sibling.ok()) return {sibling.status().code(), "trace: " + sibling.status().message()};
  Status status = copy_out(header.value(), sibling->file);
  if (status.ok() && std::rename(sibling->path.c_str(), path.c_str()) != 0) status = system_error("rename");
  if (!status.ok()) {
    ::unlink(sibling->path.c_str());
    return {status.code(), fmt::format("trace: {}: {}", path, status.message())};
  }
  finished = true;
  spool = File();
  return {};
}

TraceWriter::TraceWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;
TraceWriter::~TraceWriter() = default;

Result<TraceWriter> TraceWriter::create(const std::string& path, TraceInfo info) try {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->info = std::move(info);
  RR_TRY(impl->open());
  return TraceWriter(std::move(impl));
} catch (const std::bad_alloc&) {
  return Status(Code::kOutOfMemory, "trace: not enough memory to begin " + path);
}

Status TraceWriter::add_layer(int layer, const Tensor& q, const Tensor& k, const Tensor& v) {
  if (rows(layer) > 0) return invalid(layer, "added twice");
  if (q.tokens < 0 || k.tokens < q.tokens)
    return invalid(layer,
                   fmt::format("{} keys for {} queries; expected as many or more", k.tokens, q.tokens));
  return add_rows(layer, q, k, v, k.tokens - q.tokens);
}

Status TraceWriter::add_rows(int layer, const Tensor& q, const Tensor& k, const Tensor& v,
                             int64_t position) try {
  return impl_->add_rows(layer, q, k, v, position);
} catch (const std::bad_alloc&) {
  return {Code::kOutOfMemory, "trace: not enough memory to note rows"};
}

int64_t TraceWriter::rows(int layer) const {
  const auto it = impl_->layers.find(layer);
  return it == impl_->layers.end() ? 0 : it->second.parts[0].tokens;
}

Status TraceWriter::finish() try { return impl_->finish(); } catch (const std::bad_alloc&) {
  return {Code::kOutOfMemory, "trace: not enough memory to lay out the header"};
}

}  // namespace routerelay
