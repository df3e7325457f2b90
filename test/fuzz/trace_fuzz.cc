// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes as a trace. Opens them and reads every byte that a view covers.
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -DFMT_HEADER_ONLY -Iinclude -Isrc -Itest \
//     test/fuzz/trace_fuzz.cc src/trace/*.cc -o build/trace_fuzz && build/trace_fuzz -max_len=4096
#include <cstddef>
#include <cstdint>

#include "routerelay/trace.hpp"
#include "trace/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace routerelay;
  static support::MemoryFile file;
  if (!file.assign(data, size)) return 0;
  const Result<Trace> trace = Trace::open(file.path());
  if (!trace.ok()) return 0;
  volatile uint64_t sum = 0;
  for (const TraceLayer& l : trace.value().layers())
    for (const Tensor* t : {&l.q, &l.k, &l.v})
      for (char c : support::bytes_of(*t)) sum = sum + static_cast<unsigned char>(c);
  return 0;
}
