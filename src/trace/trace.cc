// SPDX-License-Identifier: Apache-2.0
// Opens a trace: maps the file, checks header, metadata and layers, and hands out views of q, k and v.
#include "routerelay/trace.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "core/assert.h"
#include "trace/file.h"
#include "trace/header.h"

namespace routerelay {
namespace {

constexpr int64_t kLengthField = 8;  // u64, little endian: bytes of the JSON header behind it

class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data_) ::munmap(data_, static_cast<size_t>(bytes_));
  }

  Status map(const std::string& path) {
    // Without O_NONBLOCK a named pipe would wait here for a writer.
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.fd() < 0) return system_error("cannot open");
    struct stat info {};
    if (::fstat(file.fd(), &info) != 0) return system_error("cannot stat");
    if (!S_ISREG(info.st_mode)) return {Code::kInvalidArgument, "not a regular file"};
    bytes_ = info.st_size;
    if (bytes_ == 0) return {Code::kInvalidArgument, "the file is empty"};
    void* data = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_PRIVATE, file.fd(), 0);
    if (data == MAP_FAILED) return system_error("cannot map");
    data_ = data;
    return {};
  }
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

Status invalid(std::string what) {
  return {Code::kInvalidArgument, std::move(what)};
}

// Takes `key` out of the metadata and reads it as a number that must be finite and not negative.
template <class T>
Status take_number(std::map<std::string, std::string>& metadata, const std::string& key, T& value) {
  const auto node = metadata.extract(key);
  if (node.empty()) return {};
  const std::string& text = node.mapped();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(static_cast<double>(value)) || value < 0)
    return invalid(fmt::format("metadata {} is {}; expected a number from 0", key, quote(text)));
  return {};
}

Status read_info(std::map<std::string, std::string> metadata, TraceInfo& info) {
  const auto format = metadata.extract("format");
  if (format.empty() || format.mapped() != "routerelay-trace")
    return invalid(fmt::format("metadata format is {}; a trace has \"routerelay-trace\"",
                               format.empty() ? "missing" : quote(format.mapped())));
  const auto version = metadata.extract("version");
  if (version.empty() || version.mapped() != "1")
    return invalid(fmt::format("metadata version is {}; this build reads \"1\"",
                               version.empty() ? "missing" : quote(version.mapped())));
  RR_TRY(take_number(metadata, "scale", info.scale));
  RR_TRY(take_number(metadata, "q_offset", info.q_offset));
  if (auto model = metadata.extract("model")) info.model = std::move(model.mapped());
  info.extra = std::move(metadata);
  return {};
}

std::string shape_of(const Tensor& t) {
  return fmt::format("[{}, {}, {}] {}", t.tokens, t.heads, t.head_dim, dtype_name(t.dtype));
}

// What the engine relies on across the three tensors of a layer and across layers.
Status check_shapes(const std::vector<TraceLayer>& layers, const TraceInfo& info) {
  for (const TraceLayer& l : layers) {
    for (const auto& [name, t] : {std::pair('q', &l.q), std::pair('k', &l.k), std::pair('v', &l.v)})
      if (!t->data) return invalid(fmt::format("layer {} has no {}", l.layer, name));
    if (l.k.tokens != l.v.tokens || l.k.heads != l.v.heads || l.k.head_dim != l.v.head_dim ||
        l.k.dtype != l.v.dtype)
      return invalid(fmt::format("layer {}: k is {}, v is {}; expected the same", l.layer, shape_of(l.k),
                                 shape_of(l.v)));
    if (l.q.head_dim != l.k.head_dim || l.q.heads % l.k.heads != 0)
      return invalid(
          fmt::format("layer {}: q is {}, k is {}; expected one head_dim, and kv_heads dividing q_heads",
                      l.layer, shape_of(l.q), shape_of(l.k)));
    // In this order nothing overflows: both terms were backed by bytes or bounded before.
    if (info.q_offset > l.k.tokens || l.k.tokens - info.q_offset != l.q.tokens)
      return invalid(
          fmt::format("layer {}: {} keys for {} queries at q_offset {}; expected q_offset + queries", l.layer,
                      l.k.tokens, l.q.tokens, info.q_offset));
    if (l.q.tokens != layers.front().q.tokens)
      return invalid(fmt::format("layer {} has {} queries, layer {} has {}; expected the same", l.layer,
                                 l.q.tokens, layers.front().layer, layers.front().q.tokens));
  }
  return {};
}

}  // namespace

struct Trace::Impl {
  Mapping file;
  TraceInfo info;
  std::vector<TraceLayer> layers;
  std::vector<std::vector<std::byte>> copies;

  Status open(const std::string& path);
  Status read(Header& header, const std::byte* data);
  Tensor view(const TensorEntry& entry, const std::byte* data);
};

Status Trace::Impl::open(const std::string& path) {
  RR_TRY(file.map(path));
  if (file.bytes() < kLengthField)
    return invalid(fmt::format(
        "is no trace: {} bytes; a safetensors file begins with 8 for its header's length", file.bytes()));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const int64_t rest = file.bytes() - kLengthField;
  if (length > static_cast<uint64_t>(kMaxHeaderBytes))
    return invalid(
        fmt::format("is no trace: its header's length is {}; legal: up to {}", length, kMaxHeaderBytes));
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > rest)
    return invalid(
        fmt::format("the header takes {} bytes, {} follow; was it cut short?", header_bytes, rest));
  const auto* text = reinterpret_cast<const char*>(file.data() + kLengthField);
  Result<Header> header = parse_header({text, static_cast<size_t>(header_bytes)});
  if (!header.ok()) return header.status();
  RR_TRY(check_extents(header->tensors, rest - header_bytes));
  return read(header.value(), file.data() + kLengthField + header_bytes);
}

Status Trace::Impl::read(Header& header, const std::byte* data) {
  RR_TRY(read_info(std::move(header.metadata), info));
  std::map<int, TraceLayer> by_index;
  for (const TensorEntry& entry : header.tensors) {
    TraceLayer& l = by_index[entry.layer];
    l.layer = entry.layer;
    (entry.part == 'q' ? l.q : entry.part == 'k' ? l.k : l.v) = view(entry, data);
  }
  if (by_index.empty()) return invalid("no layers");
  for (auto& [_, l] : by_index) layers.push_back(l);
  return check_shapes(layers, info);
}

Tensor Trace::Impl::view(const TensorEntry& entry, const std::byte* data) {
  RR_ASSERT(0 <= entry.begin && entry.begin <= entry.end && data + entry.end <= file.data() + file.bytes());
  const std::byte* at = data + entry.begin;
  if (entry.end > entry.begin &&
      reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(alignment_of(entry.dtype)) != 0) {
    copies.emplace_back(at, data + entry.end);
    at = copies.back().data();
  }
  return contiguous(at, entry.dtype, entry.shape[0], entry.shape[1], entry.shape[2]);
}

Trace::Trace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trace::Trace(Trace&&) noexcept = default;
Trace& Trace::operator=(Trace&&) noexcept = default;
Trace::~Trace() = default;

Result<Trace> Trace::open(const std::string& path) try {
  auto impl = std::make_unique<Impl>();
  const Status status = impl->open(path);
  if (!status.ok()) return Status(status.code(), "trace: " + path + ": " + status.message());
  return Trace(std::move(impl));
} catch (const std::bad_alloc&) {
  return Status(Code::kOutOfMemory, "trace: " + path + ": not enough memory to open it");
}

const TraceInfo& Trace::info() const {
  return impl_->info;
}

std::span<const TraceLayer> Trace::layers() const {
  return impl_->layers;
}

const TraceLayer* Trace::find(int layer) const {
  const auto& layers = impl_->layers;
  const auto it = std::lower_bound(layers.begin(), layers.end(), layer,
                                   [](const TraceLayer& l, int wanted) { return l.layer < wanted; });
  return it != layers.end() && it->layer == layer ? &*it : nullptr;
}

}  // namespace routerelay
