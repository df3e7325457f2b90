// SPDX-License-Identifier: Apache-2.0
#include "host_team.h"

#include <dlfcn.h>

namespace routerelay::ggml {
namespace {

// libgomp's entry points behind `#pragma omp parallel`, stable since GCC 4.9.
using Parallel = void (*)(void (*fn)(void*), void* data, unsigned threads, unsigned flags);
using ThreadNumber = int (*)();

struct Call {
  const std::function<void(int)>& fn;
  ThreadNumber thread_number;
};
void enter(void* data) {
  const Call& call = *static_cast<const Call*>(data);
  call.fn(call.thread_number());
}

}  // namespace

Team host_team(const void* host_code) {
  Dl_info info{};
  if (dladdr(host_code, &info) == 0) return {};
  void* module = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (module == nullptr) return {};
  const auto parallel = reinterpret_cast<Parallel>(dlsym(module, "GOMP_parallel"));
  const auto thread_number = reinterpret_cast<ThreadNumber>(dlsym(module, "omp_get_thread_num"));
  if (parallel == nullptr || thread_number == nullptr) return {};
  return [parallel, thread_number](int n, const std::function<void(int)>& fn) {
    Call call{fn, thread_number};
    parallel(enter, &call, static_cast<unsigned>(n), 0);
  };
}

}  // namespace routerelay::ggml
