// SPDX-License-Identifier: Apache-2.0
// Attend with the kernels of an architecture that is not the device's own: every device that runs sm_90's also runs
// sm_80's, and so can test them.
#pragma once

#include "cuda/attend/config.h"
#include "routerelay/cuda.hpp"

namespace routerelay::cuda {

// As attend(), which chooses the architecture by the device.
Status attend_with(Arch arch, const AttendArgs& args, std::byte* workspace, int64_t workspace_bytes,
                   CUstream_st* stream);

}  // namespace routerelay::cuda
