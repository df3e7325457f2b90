// SPDX-License-Identifier: Apache-2.0
// Tests that run once for every instruction set, alone or beside another parameter, and skip what the machine lacks.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "core/cpu_features.h"

namespace routerelay::support {

inline Isa isa_of(Isa param) {
  return param;
}
template <class Other>
Isa isa_of(const std::tuple<Isa, Other>& param) {
  return std::get<0>(param);
}

template <class Param>
class IsaTest : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!isa_available(isa())) GTEST_SKIP() << "this machine has no " << name_of(isa());
  }
  static Isa isa() { return isa_of(testing::TestWithParam<Param>::GetParam()); }
};

inline const auto kEveryIsa =
    testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmxBf16);

// The last argument of INSTANTIATE_TEST_SUITE_P; what goes beside an ISA has a name_of too.
struct CaseName {
  std::string operator()(const testing::TestParamInfo<Isa>& each) const { return name_of(each.param); }
  template <class Other>
  std::string operator()(const testing::TestParamInfo<std::tuple<Isa, Other>>& each) const {
    return std::string(name_of(isa_of(each.param))) + "_" + name_of(std::get<1>(each.param));
  }
};

}  // namespace routerelay::support
