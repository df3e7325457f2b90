// SPDX-License-Identifier: Apache-2.0
// Owned file descriptors, and the few calls on them that traces need, with errors in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "routerelay/status.hpp"

namespace routerelay {

class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File();

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// "<what>: <the system's words for errno>", kDeviceError.
Status system_error(const std::string& what);

// A new file beside `path`, in the same folder so that a rename stays on one file system.
struct Sibling {
  File file;
  std::string path;
};
Result<Sibling> create_sibling(const std::string& path);

// All of the bytes or an error; both go on after interruptions and short counts.
Status write_at(const File& file, const std::byte* data, int64_t bytes, int64_t offset);
Status read_at(const File& file, std::byte* data, int64_t bytes, int64_t offset);

}  // namespace routerelay
