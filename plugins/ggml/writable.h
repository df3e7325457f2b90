// SPDX-License-Identifier: Apache-2.0
// Whether a report or a trace can be put where the user wants it: tried when the host loads us, so that nobody learns
// it after an hour's work.
#pragma once

#include <string>

namespace routerelay::ggml {

bool can_write(const std::string& path);

}  // namespace routerelay::ggml
