// SPDX-License-Identifier: Apache-2.0
// make_rows: every query in one row, and what a row says it sees is what the causal mask shows it.
#include "core/rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/rng.h"

namespace routerelay {
namespace {

// Keys that query i of a sequence sees, by the contract's words.
int64_t seen(const Sequence& s, int64_t i) {
  int64_t count = 0;
  for (int64_t j = 0; j < s.k_len; ++j) count += j <= s.q_offset + i ? 1 : 0;
  return count;
}

void check_row(const Rows& rows, const Row& row, const Sequence& s) {
  const int64_t first = row.position - s.q_offset;
  ASSERT_EQ(row.q_begin, s.q_begin + first);
  ASSERT_GE(row.q_count, 1);
  ASSERT_LE(row.q_count, rows.q_block);
  for (int32_t i = 0; i < row.q_count; ++i) ASSERT_EQ(row.keys_of(i), seen(s, first + i));
  ASSERT_EQ(row.visible_keys, seen(s, first + row.q_count - 1));
  ASSERT_EQ(row.visible_blocks, ceil_div(row.visible_keys, rows.k_block));
  ASSERT_EQ(row.k_begin, s.k_begin);
  // Blocks before the diagonal are whole for the first query; the diagonal is a visible block.
  ASSERT_LE(static_cast<int64_t>(row.diagonal) * rows.k_block, row.keys_of(0));
  ASSERT_LE(row.diagonal, std::max(0, row.visible_blocks - 1));
  if (row.diagonal + 1 < row.visible_blocks) {
    ASSERT_GT(static_cast<int64_t>(row.diagonal + 1) * rows.k_block, row.keys_of(0));
  }
}

TEST(Rows, HoldEveryQueryOnceAndSeeWhatTheMaskShows) {
  Philox random(11, 0);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<Sequence> sequences;
    int64_t q = 0, k = 0;
    for (uint32_t n = random.below(4); n > 0; --n) {
      Sequence s;
      s.q_begin = q + random.below(5);  // queries that belong to nobody may lie between
      s.q_len = random.below(300);
      s.k_begin = k;
      s.k_len = random.below(500);
      s.q_offset = random.below(2) == 0 ? std::max<int64_t>(0, s.k_len - s.q_len) : random.below(600);
      sequences.push_back(s);
      q = s.q_begin + s.q_len;
      k += s.k_len;
    }
    const int q_block = random.below(2) == 0 ? 64 : 128, k_block = random.below(2) == 0 ? 64 : 128;
    const Rows rows = make_rows(sequences, q_block, k_block);
    ASSERT_EQ(rows.runs.size(), sequences.size());
    int64_t blocks = 0;
    size_t next = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& s = sequences[i];
      ASSERT_EQ(rows.runs[i].first_block, blocks);
      ASSERT_EQ(rows.runs[i].n_blocks, ceil_div(s.k_len, k_block));
      for (int64_t at = 0; at < s.q_len; at += rows.rows[next - 1].q_count) {
        const Row& row = rows.rows[next++];
        ASSERT_EQ(row.sequence, static_cast<int32_t>(i));
        ASSERT_EQ(row.position, s.q_offset + at);
        ASSERT_EQ(row.first_block, blocks);
        check_row(rows, row, s);
      }
      blocks += rows.runs[i].n_blocks;
    }
    ASSERT_EQ(next, rows.rows.size());
    ASSERT_EQ(rows.n_blocks, blocks);
  }
}

TEST(Rows, ChunksThatAreMultiplesOfARowCutAsTheWhole) {
  const Sequence whole[] = {{0, 1000, 0, 1000, 0}};
  const Rows all = make_rows(whole, 64, 64);
  for (int64_t chunk : {64, 192, 512}) {
    size_t next = 0;
    for (int64_t begin = 0; begin < 1000; begin += chunk) {
      const int64_t len = std::min<int64_t>(chunk, 1000 - begin);
      const Sequence part[] = {{0, len, 0, begin + len, begin}};
      for (const Row& row : make_rows(part, 64, 64).rows) {
        const Row& same = all.rows[next++];
        EXPECT_EQ(row.position, same.position);
        EXPECT_EQ(row.q_count, same.q_count);
        EXPECT_EQ(row.visible_keys, same.visible_keys);
        EXPECT_EQ(row.visible_blocks, same.visible_blocks);
        EXPECT_EQ(row.diagonal, same.diagonal);
      }
    }
    EXPECT_EQ(next, all.rows.size());
  }
}

TEST(Rows, AnOffsetBehindTheKeysShowsAllOfThem) {
  const Sequence s[] = {{0, 3, 0, 130, 500}};
  const Rows rows = make_rows(s, 64, 64);
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows.rows[0].keys_of(0), 130);
  EXPECT_EQ(rows.rows[0].visible_blocks, 3);
  EXPECT_EQ(rows.rows[0].diagonal, 2);  // whole, yet kept: a row never loses its diagonal
}

TEST(Rows, NoKeysMeansNoBlocks) {
  const Sequence s[] = {{0, 70, 0, 0, 0}};
  const Rows rows = make_rows(s, 64, 64);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows.rows[1].visible_blocks, 0);
  EXPECT_EQ(rows.rows[1].keys_of(0), 0);
  EXPECT_EQ(rows.n_blocks, 0);
}

}  // namespace
}  // namespace routerelay
