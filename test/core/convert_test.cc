// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 against their definition, for every 16-bit pattern and around every rounding boundary.
#include "core/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace routerelay {
namespace {

// The value of a 16-bit float by its definition: sign, exponent, mantissa; in float64, so without rounding.
double value_of(uint16_t h, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int mantissa = h & ((1 << mantissa_bits) - 1),
            exponent = (h >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double sign = (h & 0x8000) ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  const char* name;
  int mantissa_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};
const Format kFormats[] = {{"bf16", 7, bf16_to_f32, f32_to_bf16}, {"f16", 10, f16_to_f32, f32_to_f16}};

TEST(Convert, EveryPatternWidensToItsValueAndComesBack) {
  for (const Format& f : kFormats) {
    for (uint32_t i = 0; i <= 0xffff; ++i) {
      const auto h = static_cast<uint16_t>(i);
      const double want = value_of(h, f.mantissa_bits);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(f.widen(h))) << f.name << " " << i;
        EXPECT_TRUE(std::isnan(f.widen(f.narrow(f.widen(h))))) << f.name << " " << i;
        continue;
      }
      ASSERT_EQ(static_cast<double>(f.widen(h)), want) << f.name << " " << i;
      ASSERT_EQ(f.narrow(f.widen(h)), h) << f.name << " " << i;
    }
  }
}

// Between two neighbours: below the midpoint to the lower, above to the upper, at it to the even one.
TEST(Convert, NarrowingRoundsToNearestEven) {
  for (const Format& f : kFormats) {
    const auto infinity = static_cast<uint16_t>(((1 << (15 - f.mantissa_bits)) - 1) << f.mantissa_bits);
    for (uint16_t h = 0; h + 1 < infinity; ++h) {
      const float low = f.widen(h), high = f.widen(static_cast<uint16_t>(h + 1));
      const auto middle = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
      const auto even = static_cast<uint16_t>(h % 2 == 0 ? h : h + 1);
      ASSERT_EQ(f.narrow(middle), even) << f.name << " " << h;
      ASSERT_EQ(f.narrow(std::nextafter(middle, 0.0f)), h) << f.name << " " << h;
      ASSERT_EQ(f.narrow(std::nextafter(middle, high * 2)), h + 1) << f.name << " " << h;
      ASSERT_EQ(f.narrow(-middle), even | 0x8000) << f.name << " " << h;
    }
  }
}

TEST(Convert, TooLargeBecomesInfinity) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(f32_to_f16(1e-30f), 0);
  EXPECT_EQ(f32_to_f16(-1e-30f), 0x8000);
}

TEST(Convert, LoadsAndStoresEveryDtypeUnaligned) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<std::byte> bytes(64);
    std::byte* odd = bytes.data() + 1;
    for (int64_t i = 0; i < 8; ++i) store_f32(odd, dtype, i, 0.5f * static_cast<float>(i) - 2);
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_EQ(load_f32(odd, dtype, i), 0.5f * static_cast<float>(i) - 2) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace routerelay
