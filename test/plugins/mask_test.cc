// SPDX-License-Identifier: Apache-2.0
// Masks: what counts as a plain causal chunk, and why anything else does not.
#include "mask.h"

#include <gtest/gtest.h>

#include <vector>

namespace routerelay::ggml {
namespace {

constexpr uint16_t kMinusZero = 0x8000, kHalfOne = 0x3c00, kHalfNan = 0x7e00;

struct Mask {
  int64_t rows, keys;
  std::vector<uint16_t> data;

  // Row r sees [0, first + r).
  Mask(int64_t n_rows, int64_t n_keys, int64_t first)
      : rows(n_rows), keys(n_keys), data(static_cast<size_t>(n_rows * n_keys), kHalfMinusInf) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < first + r && j < keys; ++j) at(r, j) = kHalfZero;
  }
  uint16_t& at(int64_t row, int64_t key) { return data[static_cast<size_t>(row * keys + key)]; }
  CausalChunk classify() const { return ggml::classify({data.data(), rows, keys, keys}); }
};

TEST(Mask, FindsTheChunkAtEveryAlignment) {
  // 32 halves are compared at a time: cross that border on both sides of the run.
  for (const int64_t first : {1, 2, 31, 32, 33, 63, 64, 65, 200, 256})
    for (const int64_t rows : {1, 3, 64}) {
      const CausalChunk chunk = Mask(rows, 320, first).classify();
      EXPECT_EQ(chunk.reason, Reason::kNone) << first << " " << rows;
      EXPECT_EQ(chunk.first_visible, first);
      EXPECT_EQ(chunk.last_visible, first + rows - 1);
    }
}

TEST(Mask, TheLastRowMaySeeEveryKey) {
  EXPECT_EQ(Mask(64, 128, 65).classify().last_visible, 128);
  // One key more is not there: two rows see the same keys.
  EXPECT_EQ(Mask(64, 128, 66).classify().reason, Reason::kMaskNotCausal);
}

TEST(Mask, NamesWhatIsWrong) {
  Mask hole(8, 128, 40);
  hole.at(5, 17) = kHalfMinusInf;
  EXPECT_EQ(hole.classify().reason, Reason::kMaskNotCausal);

  Mask window(8, 128, 40);  // a sliding window drops the oldest key
  for (int64_t r = 0; r < 8; ++r) window.at(r, 0) = kHalfMinusInf;
  EXPECT_EQ(window.classify().reason, Reason::kMaskNotCausal);

  Mask ahead(8, 128, 40);
  ahead.at(2, 100) = kHalfZero;
  EXPECT_EQ(ahead.classify().reason, Reason::kMaskNotCausal);

  Mask bias(8, 128, 40);
  bias.at(3, 10) = kHalfOne;
  EXPECT_EQ(bias.classify().reason, Reason::kMaskValues);

  Mask nan(8, 128, 40);
  nan.at(7, 127) = kHalfNan;
  EXPECT_EQ(nan.classify().reason, Reason::kMaskValues);

  Mask empty(8, 128, 40);  // padding rows at the end
  for (int64_t j = 0; j < 128; ++j) empty.at(7, j) = kHalfMinusInf;
  EXPECT_EQ(empty.classify().reason, Reason::kMaskEmptyRow);
  EXPECT_EQ(Mask(4, 64, 0).classify().reason, Reason::kMaskEmptyRow);
}

// -0 is a zero too, but no host writes it: leaving it to the host is right, and keeps the comparison bitwise.
TEST(Mask, MinusZeroIsNotTaken) {
  Mask mask(4, 64, 20);
  mask.at(1, 5) = kMinusZero;
  EXPECT_EQ(mask.classify().reason, Reason::kMaskValues);
}

TEST(Mask, NoRowsIsEmpty) {
  EXPECT_EQ(ggml::classify({nullptr, 0, 64, 64}).reason, Reason::kNone);
}

}  // namespace
}  // namespace routerelay::ggml
