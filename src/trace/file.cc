// SPDX-License-Identifier: Apache-2.0
// Owned file descriptors, and the few calls on them that traces need, with errors in words.
#include "trace/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace routerelay {
namespace {

constexpr int kNameTries = 1000;  // leftovers of killed processes with our id

Status transfer_error(const char* what, ssize_t count) {
  if (count == 0) return {Code::kDeviceError, std::string(what) + ": the file ended early"};
  return system_error(what);
}

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Status system_error(const std::string& what) {
  return {Code::kDeviceError, what + ": " + std::generic_category().message(errno)};
}

Result<Sibling> create_sibling(const std::string& path) {
  for (int i = 0; i < kNameTries; ++i) {
    std::string name = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return Sibling{File(fd), std::move(name)};
    if (errno != EEXIST) break;
  }
  return system_error("cannot create a file beside " + path);
}

Status write_at(const File& file, const std::byte* data, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t count = ::pwrite(file.fd(), data, static_cast<size_t>(bytes), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return transfer_error("write", count);
    data += count;
    bytes -= count;
    offset += count;
  }
  return {};
}

Status read_at(const File& file, std::byte* data, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t count = ::pread(file.fd(), data, static_cast<size_t>(bytes), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return transfer_error("read", count);
    data += count;
    bytes -= count;
    offset += count;
  }
  return {};
}

}  // namespace routerelay
