// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 against their definition, for every 16-bit pattern and around every rounding boundary.
#include "core/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// By ggml's definition: bytes 0 and 1 an f16, then 32 int8.
TEST(Convert, Q8BlocksAreAScaleAnd32Steps) {
  std::vector<std::byte> bytes(2 * kQ8Bytes);
  bytes[34] = std::byte{0x00}, bytes[35] = std::byte{0xb8};  // -0.5
  for (int i = 0; i < 32; ++i) bytes[36 + i] = static_cast<std::byte>(i * 8 - 128);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(load_f32(bytes.data(), DType::kQ8_0, 32 + i), -0.5f * (i * 8 - 128));
  EXPECT_EQ(bytes_of(DType::kQ8_0, 64), 68);
}

TEST(Convert, QuantisesToTheNearestStep) {
  std::vector<std::byte> block(kQ8Bytes);
  for (const float size : {1e-6f, 0.37f, 1.0f, 5e4f, 8e6f}) {
    float x[kQ8Elements], largest = 0;
    for (int i = 0; i < kQ8Elements; ++i) {
      x[i] = size * std::sin(static_cast<float>(i * i) + 1);
      largest = std::max(largest, std::fabs(x[i]));
    }
    store_q8_0(block.data(), x);
    // Half a step; half an f16 more, 127 times, where the scale was rounded down and the step reaches no further.
    const float scale = largest / 127, off = std::max(scale * 0x1p-11f, 0x1p-25f);
    for (int i = 0; i < kQ8Elements; ++i)
      EXPECT_NEAR(load_q8_0(block.data(), i), x[i], scale / 2 + 127 * off) << size << " " << i;
  }
  const float zeros[kQ8Elements] = {};
  store_q8_0(block.data(), zeros);
  EXPECT_EQ(load_q8_0(block.data(), 31), 0);
}

TEST(Convert, WhatIsNotFiniteTakesItsBlock) {
  std::vector<std::byte> block(kQ8Bytes);
  for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    float x[kQ8Elements] = {1, 2, 3};
    x[17] = value;
    store_q8_0(block.data(), x);
    for (int i = 0; i < kQ8Elements; ++i)
      EXPECT_TRUE(std::isnan(value) ? std::isnan(load_q8_0(block.data(), i))
                                    : load_q8_0(block.data(), i) == value);
  }
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
