// SPDX-License-Identifier: Apache-2.0
// Masks: what counts as a plain causal chunk, and that nothing else does.
#include "mask.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/exec.h"

namespace routerelay::ggml {
namespace {

constexpr uint16_t kMinusZero = 0x8000, kHalfOne = 0x3c00, kHalfNan = 0x7e00;

struct Mask {
  int64_t rows, keys;
  std::vector<uint16_t> data;

  // Row r sees [begin, begin + first + r).
  Mask(int64_t n_rows, int64_t n_keys, int64_t first, int64_t begin = 0)
      : rows(n_rows), keys(n_keys), data(static_cast<size_t>(n_rows * n_keys), kHalfMinusInf) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = begin; j < begin + first + r && j < keys; ++j) at(r, j) = kHalfZero;
  }
  uint16_t& at(int64_t row, int64_t key) { return data[static_cast<size_t>(row * keys + key)]; }
  std::optional<CausalChunk> chunk() const {
    support::TestExec on;
    return causal_chunk({data.data(), rows, keys, keys}, on.exec);
  }
};

TEST(Mask, FindsTheChunkAtEveryAlignment) {
  // 32 halves are compared at a time: cross that border on both sides of the run.
  for (const int64_t begin : {0, 1, 31, 32, 33, 100})
    for (const int64_t first : {1, 2, 31, 32, 33, 63, 64, 65, 200, 256})
      for (const int64_t rows : {1, 3, 64}) {
        const auto chunk = Mask(rows, 420, first, begin).chunk();
        ASSERT_TRUE(chunk.has_value()) << begin << " " << first << " " << rows;
        EXPECT_EQ(chunk->begin, begin);
        EXPECT_EQ(chunk->first_visible, first);
        EXPECT_EQ(chunk->last_visible, first + rows - 1);
      }
}

TEST(Mask, AllRowsBeginAtOneKey) {
  Mask shared(8, 128, 40, 20);
  shared.at(5, 19) = kHalfZero;  // a key of the prompt before
  EXPECT_FALSE(shared.chunk().has_value());
  Mask late(8, 128, 40, 20);
  late.at(5, 20) = kHalfMinusInf;
  EXPECT_FALSE(late.chunk().has_value());
}

TEST(Mask, TheLastRowMaySeeEveryKey) {
  EXPECT_EQ(Mask(64, 128, 65).chunk().value().last_visible, 128);
  // One key more is not there: two rows see the same keys.
  EXPECT_FALSE(Mask(64, 128, 66).chunk().has_value());
}

TEST(Mask, AnythingElseIsNone) {
  Mask hole(8, 128, 40);
  hole.at(5, 17) = kHalfMinusInf;
  EXPECT_FALSE(hole.chunk().has_value());

  Mask window(8, 128, 40);  // a sliding window drops the oldest key
  for (int64_t r = 0; r < 8; ++r)
    for (int64_t j = 0; j <= r; ++j) window.at(r, j) = kHalfMinusInf;
  EXPECT_FALSE(window.chunk().has_value());

  Mask ahead(8, 128, 40);
  ahead.at(2, 100) = kHalfZero;
  EXPECT_FALSE(ahead.chunk().has_value());

  Mask bias(8, 128, 40);
  bias.at(3, 10) = kHalfOne;
  EXPECT_FALSE(bias.chunk().has_value());

  Mask nan(8, 128, 40);
  nan.at(7, 127) = kHalfNan;
  EXPECT_FALSE(nan.chunk().has_value());

  Mask empty(8, 128, 40);  // padding rows at the end
  for (int64_t j = 0; j < 128; ++j) empty.at(7, j) = kHalfMinusInf;
  EXPECT_FALSE(empty.chunk().has_value());
  EXPECT_FALSE(Mask(4, 64, 0).chunk().has_value());
}

// -0 shows a key too, but no host writes it: comparing bits is faster, and the engine reads such a mask as well.
TEST(Mask, MinusZeroIsNotTaken) {
  Mask mask(4, 64, 20);
  mask.at(1, 5) = kMinusZero;
  EXPECT_FALSE(mask.chunk().has_value());
}

TEST(Mask, NoRowsIsEmpty) {
  support::TestExec on;
  EXPECT_TRUE(causal_chunk({nullptr, 0, 64, 64}, on.exec).has_value());
}

}  // namespace
}  // namespace routerelay::ggml
