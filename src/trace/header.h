// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file that holds a trace, as plain data. Reads and writes no file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "routerelay/status.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay {

// A trace of 1,000 layers has a header of about 400 KiB; this bounds what a hostile one can make us parse.
inline constexpr int64_t kMaxHeaderBytes = int64_t{8} << 20;
// Bounds every product of shapes that no tensor has to back, as that of heads and head_dim without tokens.
inline constexpr int64_t kMaxHeads = 65536;
inline constexpr int64_t kMaxHeadDim = 65536;
inline constexpr int kMaxLayer = 65535;

struct TensorEntry {
  int layer = 0;
  char part = 'q';  // q, k or v
  DType dtype = DType::kF32;
  std::array<int64_t, 3> shape{};  // tokens, heads, head_dim
  int64_t begin = 0;               // bytes from the end of the header
  int64_t end = 0;

  std::string name() const;  // layers.<layer>.<part>
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;
};

// Text from a file, fit for a message: short, quoted, in printable ASCII.
std::string quote(std::string_view text);

// Every entry that comes back has a legal name, dtype and shape, and end - begin is what they need. Where the
// bytes lie is checked by check_extents. A tensor that is not a layer's q, k or v is an error: ignoring it
// would let a misspelt layer vanish. kInvalidArgument.
Result<Header> parse_header(std::string_view json);

// The tensors fill [0, data_bytes) without hole or overlap, as safetensors asks; sorts them by place.
Status check_extents(std::vector<TensorEntry>& tensors, int64_t data_bytes);

// Header text, padded with spaces so that the data behind it starts at a multiple of 64 bytes.
std::string format_header(const Header& header);

}  // namespace routerelay
