// SPDX-License-Identifier: Apache-2.0
// Which attention calls the plug-in claims, by shape, type and parameters. Pure: reads no tensor data.
#pragma once

#include <cstdint>
#include <optional>

#include "layout.h"
#include "reason.h"
#include "routerelay/tensor.hpp"

namespace routerelay::ggml {

struct Claims {
  int64_t min_rows =
      64;  // the host probes flash attention with one row per sequence: claiming those makes it
           // switch flash attention off altogether
  int64_t min_keys = 0;
};

// The engine's dtype for keys and values of a host's type; none for types that stay with the host.
std::optional<DType> kv_dtype_of(int32_t type);

// From the first token of a stream to that of the next, in a view [d, tokens, heads, streams] that was not declined.
int64_t tokens_between_streams(const HostTensor& t);

// kNone: whatever the mask holds, compute gives this FLASH_ATTN_EXT node a right answer.
Reason why_declined(const HostTensor& node, const Claims& claims);

}  // namespace routerelay::ggml
