// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file that holds a trace, as plain data. Reads and writes no file.
#include "trace/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

namespace routerelay {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr size_t kQuoteBytes = 60;  // longer texts are cut in messages

const char* safetensors_name(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kBF16 ? "BF16" : "F16";
}

bool parse_dtype(std::string_view name, DType& dtype) {
  for (DType d : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == safetensors_name(d)) {
      dtype = d;
      return true;
    }
  }
  return false;
}

// layers.<i>.<q|k|v>, i without leading zeros so that one tensor has one name.
bool parse_name(std::string_view name, TensorEntry& entry) {
  constexpr std::string_view kPrefix = "layers.";
  if (name.substr(0, kPrefix.size()) != kPrefix) return false;
  name.remove_prefix(kPrefix.size());
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, entry.layer);
  if (error != std::errc() || entry.layer < 0 || entry.layer > kMaxLayer || end - rest != 2) return false;
  entry.part = rest[1];
  return rest[0] == '.' && (entry.part == 'q' || entry.part == 'k' || entry.part == 'v') &&
         entry.name().size() == kPrefix.size() + name.size();
}

// Builds the header event by event. Any event that its place does not allow ends the parse, so depth and memory are
// bounded by the schema and by the text's own length.
class HeaderSax final : public nlohmann::json_sax<json> {
 public:
  Header header;
  std::string error;

  bool key(string_t& name) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(name).second) return fail("{} appears twice", quote(name));
      in_metadata_ = name == kMetadataKey;
      name_ = name;
      return true;
    }
    if (place_ == Place::kMetadata) {
      if (header.metadata.count(name)) return fail("metadata {} appears twice", quote(name));
      key_ = name;
      return true;
    }
    const Field field = name == "dtype"          ? kDtype
                        : name == "shape"        ? kShape
                        : name == "data_offsets" ? kOffsets
                                                 : kNone;
    if (field == kNone)
      return fail("tensor {} has a field {}; legal: dtype, shape, data_offsets", quote(name_), quote(name));
    if (seen_ & field) return fail("tensor {} has {} twice", quote(name_), quote(name));
    seen_ |= field;
    field_ = field;
    return true;
  }
  bool start_object(size_t) override {
    if (place_ == Place::kNowhere) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return unexpected("an object");
    place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
    if (in_metadata_) return true;
    entry_ = {};
    offsets_.clear();
    shape_.clear();
    seen_ = 0;
    if (!parse_name(name_, entry_))
      return fail("tensor {} is not layers.<0..{}>.q, .k or .v", quote(name_), kMaxLayer);
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor && !finish_tensor()) return false;
    place_ = place_ == Place::kTop ? Place::kNowhere : Place::kTop;
    return true;
  }
  bool start_array(size_t) override {
    if (place_ != Place::kTensor || (field_ != kShape && field_ != kOffsets)) return unexpected("an array");
    place_ = Place::kArray;
    return true;
  }
  bool end_array() override {
    place_ = Place::kTensor;
    field_ = kNone;
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      header.metadata.emplace(key_, text);
      return true;
    }
    if (place_ != Place::kTensor || field_ != kDtype) return unexpected("a string");
    if (!parse_dtype(text, entry_.dtype))
      return fail("tensor {} has dtype {}; legal: F32, BF16, F16", quote(name_), quote(text));
    field_ = kNone;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kArray) return unexpected("a number");
    std::vector<int64_t>& into = field_ == kShape ? shape_ : offsets_;
    const size_t room = field_ == kShape ? 3 : 2;
    if (into.size() == room)
      return fail("tensor {} has more than {} numbers in {}", quote(name_), room,
                  field_ == kShape ? "shape" : "data_offsets");
    if (value > static_cast<uint64_t>(INT64_MAX))
      return fail("tensor {} holds {}, more than 63 bits", quote(name_), value);
    into.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t value) override {
    return fail("tensor {} holds {}; sizes and offsets are not negative", quote(name_), value);
  }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(size_t byte, const std::string& token, const nlohmann::detail::exception&) override {
    return fail("not valid JSON at byte {}, near {}", byte, quote(token));
  }

 private:
  enum class Place : uint8_t { kNowhere, kTop, kMetadata, kTensor, kArray };
  enum Field : unsigned { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };

  template <class... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    error = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool unexpected(const char* what) {
    if (place_ == Place::kNowhere) return fail("is {}; expected an object", what);
    return fail("{} where {} does not have one", what,
                place_ == Place::kMetadata ? "metadata " + quote(key_) : quote(name_));
  }
  bool finish_tensor() {
    if (seen_ != (kDtype | kShape | kOffsets) || shape_.size() != 3 || offsets_.size() != 2)
      return fail("tensor {} needs dtype, shape [tokens, heads, head_dim] and data_offsets [begin, end]",
                  quote(name_));
    if (shape_[1] < 1 || shape_[1] > kMaxHeads || shape_[2] < 1 || shape_[2] > kMaxHeadDim)
      return fail("tensor {} has {} heads of {}; legal: 1..{} of 1..{}", quote(name_), shape_[1], shape_[2],
                  kMaxHeads, kMaxHeadDim);
    const int64_t token_bytes = bytes_of(entry_.dtype, shape_[1] * shape_[2]);  // at most 2^34
    int64_t bytes = 0;
    if (__builtin_mul_overflow(shape_[0], token_bytes, &bytes))
      return fail("tensor {} has {} tokens of {} bytes: more than 63 bits", quote(name_), shape_[0],
                  token_bytes);
    if (offsets_[1] < offsets_[0] || offsets_[1] - offsets_[0] != bytes)
      return fail("tensor {} lies at bytes {} to {}, but its shape and dtype need {} bytes", quote(name_),
                  offsets_[0], offsets_[1], bytes);
    std::copy(shape_.begin(), shape_.end(), entry_.shape.begin());
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header.tensors.push_back(entry_);
    return true;
  }

  Place place_ = Place::kNowhere;
  Field field_ = kNone;  // whose value comes next
  unsigned seen_ = 0;    // fields of the current tensor
  bool in_metadata_ = false;
  std::string name_;  // of the current tensor
  std::string key_;   // of the current metadata
  std::set<std::string> names_;
  TensorEntry entry_;
  std::vector<int64_t> shape_, offsets_;
};

Status invalid(std::string what) {
  return {Code::kInvalidArgument, "header: " + std::move(what)};
}

}  // namespace

std::string TensorEntry::name() const {
  return fmt::format("layers.{}.{}", layer, part);
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text.substr(0, kQuoteBytes)) out += c < 0x20 || c > 0x7e ? '?' : c;
  return out + (text.size() > kQuoteBytes ? "...\"" : "\"");
}

Result<Header> parse_header(std::string_view text) {
  HeaderSax sax;
  if (!json::sax_parse(text.begin(), text.end(), &sax)) return invalid(std::move(sax.error));
  return std::move(sax.header);
}

Status check_extents(std::vector<TensorEntry>& tensors, int64_t data_bytes) {
  // By end too: an empty tensor shares its place with the next one.
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (const TensorEntry& t : tensors) {
    if (t.end > data_bytes)
      return invalid(fmt::format("tensor {} ends at data byte {}, the file has {}; was it cut short?",
                                 quote(t.name()), t.end, data_bytes));
    if (t.begin != at)
      return invalid(fmt::format("tensor {} begins at data byte {}, the one before ends at {}; {}",
                                 quote(t.name()), t.begin, at,
                                 t.begin < at ? "they overlap" : "there is a hole"));
    at = t.end;
  }
  if (at != data_bytes)
    return invalid(fmt::format("the tensors end at data byte {}, the file has {}", at, data_bytes));
  return {};
}

std::string format_header(const Header& header) {
  json root = json::object();
  root[std::string(kMetadataKey)] = header.metadata;
  for (const TensorEntry& t : header.tensors)
    root[t.name()] = {
        {"dtype", safetensors_name(t.dtype)}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  // Metadata comes from callers: what is not UTF-8 in it is replaced rather than thrown at them.
  std::string text = root.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr size_t kLengthField = 8, kAlign = 64;  // a cache line, and more than any dtype asks
  text.append((kAlign - (kLengthField + text.size()) % kAlign) % kAlign, ' ');
  return text;
}

}  // namespace routerelay
