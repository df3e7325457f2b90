// SPDX-License-Identifier: Apache-2.0
// Whether a report or a trace can be put where the user wants it: tried when the host loads us, so that nobody learns
// it after an hour's work.
#pragma once

#include <string>

namespace routerelay::ggml {

// Where `path` leads, in full and without links: hosts change their folder, and a file that is renamed over a link
// would take its place. Empty where no file can be put: a folder, a device or a pipe is there, or nothing new can be.
std::string writable(const std::string& path);

}  // namespace routerelay::ggml
