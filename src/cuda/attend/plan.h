// SPDX-License-Identifier: Apache-2.0
// What can be decided about a call of attend without a device: whether it is legal, which kernel takes it, and where
// its workspace goes. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/attend/config.h"
#include "routerelay/cuda.hpp"

namespace routerelay::cuda {

// Every line of configs.def.
std::span<const AttendConfig> attend_configs();

inline constexpr int64_t kWorkspaceAlign = 256;  // bytes: what cudaMalloc gives

// Of a tensor. Token coordinates are 32-bit in the copy engine, and half of that range marks what is outside of all.
inline constexpr int64_t kMaxTokens = int64_t{1} << 30;

struct AttendPlan {
  AttendConfig config;           // of sm80, or with e4m3 keys of sm90
  Sequence sequence;             // when there is only one
  int64_t n_rows = 0;            // of a head
  int64_t n_work = 0;            // rows of all heads
  bool may_share_tiles = false;  // heads 2 i and 2 i + 1 share keys, values and lists
  float scale_log2 = 0;
  int64_t k_page_stride = 0, v_page_stride = 0;  // elements; read when there is a page table
  int64_t work_bytes = 0;                        // of the workspace: work items, then their counts
  int64_t workspace_bytes = 0;
};

// The kernel of a call on an architecture; with `shares_tiles`, one that two heads share where they may. configs.def
// may have no such line.
AttendConfig config_for(const AttendPlan& plan, Arch arch, bool shares_tiles);

// Shapes, dtypes, strides, pointers and sizes of a call, as far as the host can see them.
Result<AttendPlan> plan_attend(const AttendArgs& args);

}  // namespace routerelay::cuda
