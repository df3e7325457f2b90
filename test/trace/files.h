// SPDX-License-Identifier: Apache-2.0
// Files of the trace tests: a folder that vanishes with the test, and safetensors bytes made by hand.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "routerelay/tensor.hpp"

namespace routerelay::support {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rr-trace-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Names in the folder: what a failed write must not add to.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::filesystem::path path_;
};

// A file in memory that opens by a path: thousands of mutations would wear a real file system.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("trace", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  bool assign(const void* data, size_t size) {
    return ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size);
  }

 private:
  int fd_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Length field, header and `data_bytes` zeros.
inline std::string safetensors(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

// Rows whose elements say where they are: 16-bit words (or the two halves of a float) that count up.
struct Rows16 {
  Rows16(DType type, int64_t tokens, int64_t heads, int64_t head_dim, uint16_t first)
      : words(static_cast<size_t>(bytes_of(type, tokens * heads * head_dim) / 2)),
        view(contiguous(words.data(), type, tokens, heads, head_dim)) {
    for (uint16_t& word : words) word = first++;
  }
  std::string bytes() const { return {reinterpret_cast<const char*>(words.data()), words.size() * 2}; }

  std::vector<uint16_t> words;
  Tensor view;
};

inline std::string bytes_of(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.data),
          static_cast<size_t>(bytes_of(t.dtype, t.tokens * t.heads * t.head_dim))};
}

}  // namespace routerelay::support
