// SPDX-License-Identifier: Apache-2.0
// Attend as tests want it: with the kernels of an architecture that is not the device's own (every device that runs
// sm_90's also runs sm_80's), or on few multiprocessors, so that a small call goes through all that a large one does.
#pragma once

#include "cuda/attend/config.h"
#include "routerelay/cuda.hpp"

namespace routerelay::cuda {

struct Forced {
  Arch arch;
  int multiprocessors = 0;   // of sm_90's kernels; 0: all that the device has
  bool shares_tiles = true;  // heads into one tile, where they may be and the architecture can
};

// As attend(), which chooses by the device.
Status attend_with(const Forced& forced, const AttendArgs& args, std::byte* workspace,
                   int64_t workspace_bytes, CUstream_st* stream);

}  // namespace routerelay::cuda
