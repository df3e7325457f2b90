// SPDX-License-Identifier: Apache-2.0
// Names of instruction sets, and that what is available is consistent.
#include "core/cpu_features.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/status.h"

namespace routerelay {
namespace {

TEST(Isa, NamesComeBack) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmxBf16}) {
    const Result<Isa> back = isa_from(name_of(isa));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value(), isa);
  }
  EXPECT_STREQ(name_of(Isa::kAvx512Bf16), "avx512bf16");
}

TEST(Isa, AnUnknownNameIsRefusedWithTheLegalOnes) {
  support::expect_error(isa_from("sse2").status(), Code::kInvalidArgument,
                        "engine: isa is 'sse2'; legal: scalar, avx2, avx512, avx512bf16, amx");
  EXPECT_FALSE(isa_from("").ok());
  EXPECT_FALSE(isa_from("AVX2").ok());
}

TEST(Isa, ScalarIsAlwaysThereAndTheBestIsAvailable) {
  const auto& all = available_isas();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front(), Isa::kScalar);
  EXPECT_TRUE(isa_available(best_isa()));
  EXPECT_EQ(best_isa() == all.back(), std::string(why_best_isa()) == "the best of them");
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  for (Isa isa : all) EXPECT_TRUE(isa_available(isa));
}

}  // namespace
}  // namespace routerelay
