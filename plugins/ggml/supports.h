// SPDX-License-Identifier: Apache-2.0
// Which attention calls the plug-in claims, by shape, type and parameters. Pure: reads no tensor data.
#pragma once

#include <cstdint>

#include "layout.h"
#include "reason.h"

namespace routerelay::ggml {

struct Claims {
  int64_t min_rows =
      64;  // the host probes flash attention with one row per sequence: claiming those makes it
           // switch flash attention off altogether
  int64_t min_keys = 0;
};

// kNone: whatever the mask holds, compute gives this FLASH_ATTN_EXT node a right answer.
Reason why_declined(const HostTensor& node, const Claims& claims);

}  // namespace routerelay::ggml
