// SPDX-License-Identifier: Apache-2.0
// The functions of include/routerelay/plugin.h, as the host's get_proc_address hands them out.
#pragma once

#include <string_view>

namespace routerelay::ggml {

// Null where the name is none of ours.
void* control_function(std::string_view name);

}  // namespace routerelay::ggml
