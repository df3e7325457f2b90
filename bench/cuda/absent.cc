// SPDX-License-Identifier: Apache-2.0
// bench cuda-attend of a build without the CUDA back end.
#include "bench/workload/workload.h"

namespace routerelay {

Result<std::vector<Record>> bench_cuda_attend(const BenchArgs&) {
  return Status(Code::kUnsupported,
                "bench cuda-attend: this build has no CUDA back end; ./dev build cuda makes one that has, "
                "build/cuda/bin/routerelay");
}

}  // namespace routerelay
