// SPDX-License-Identifier: Apache-2.0
#include "writable.h"

#include <sys/stat.h>
#include <unistd.h>

#include "trace/file.h"

namespace routerelay::ggml {

bool can_write(const std::string& path) {
  // Both are written beside their place and renamed over it: a folder must not stand there, nor forbid new files.
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode)) return false;
  const Result<Sibling> tried = create_sibling(path);
  if (tried.ok()) ::unlink(tried.value().path.c_str());
  return tried.ok();
}

}  // namespace routerelay::ggml
