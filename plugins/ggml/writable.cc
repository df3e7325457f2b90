// SPDX-License-Identifier: Apache-2.0
#include "writable.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "trace/file.h"

namespace routerelay::ggml {
namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as Linux

std::string writable(const std::string& path) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (fs::exists(there) && !fs::is_regular_file(there)) return "";
  fs::path at = fs::absolute(path, error);
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(at, error)); ++i)
    at = at.parent_path() / fs::read_symlink(at, error);  // also one that leads to nothing yet
  std::string whole = fs::weakly_canonical(at, error).string();
  if (error || whole.empty()) return "";
  // Both are written beside their place and renamed over it.
  const Result<Sibling> tried = create_sibling(whole);
  if (!tried.ok()) return "";
  ::unlink(tried.value().path.c_str());
  return whole;
}

}  // namespace routerelay::ggml
