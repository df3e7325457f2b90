// SPDX-License-Identifier: Apache-2.0
// Every back end that this machine can run, as a parameter of tests: the reference, then the CPU on each of its ISAs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/stages.h"
#include "cpu/cpu.h"
#include "reference/reference.h"
#include "support/problem.h"
#include "support/tolerance.h"

namespace routerelay::support {

struct Backend {
  const Stages* stages = nullptr;
  Isa isa = Isa::kScalar;

  std::string name() const {
    return stages == &reference::stages() ? "reference" : std::string(stages->name) + "_" + name_of(isa);
  }
  // What it multiplies keys of `kv_dtype` in.
  Products products(DType kv_dtype) const {
    if (stages == &reference::stages()) return Products::kF64;
    return products_of(isa, kv_dtype);
  }
  Tolerance tolerance(const Problem& p) const {
    return tolerance_of(p.out.view.dtype, products(p.k.view.dtype));
  }
  // The engine that runs these stages.
  EngineOptions engine_options(int threads = 2) const {
    return {.backend = stages->name, .isa = name_of(isa), .threads = threads};
  }
};

inline std::vector<Backend> backends() {
  std::vector<Backend> all = {{&reference::stages(), Isa::kScalar}};
  for (Isa isa : available_isas()) all.push_back({&cpu::stages(), isa});
  return all;
}
inline std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.name();
}
// gtest prints a parameter it has no printer for byte by byte.
inline void PrintTo(const Backend& backend, std::ostream* os) {
  *os << backend.name();
}

}  // namespace routerelay::support
