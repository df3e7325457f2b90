// SPDX-License-Identifier: Apache-2.0
// Attend on the GPU over batches of sequences that end anywhere.
#include <gtest/gtest.h>

#include <limits>

#include "core/rng.h"
#include "cuda/attend_fixture.h"

namespace routerelay::cuda {
namespace {

using support::full_routes;
using support::OwnedTensor;
using support::Problem;
using support::ProblemArgs;
using support::random_routes;

class CudaAttendRagged : public OnDevice {
 protected:
  static bool in_a_sequence(const Problem& p, int64_t key) {
    for (const Sequence& s : p.sequences)
      if (key >= s.k_begin && key < s.k_begin + s.k_len) return true;
    return false;
  }
  static void spoil_other_keys(const Problem& p, OwnedTensor& keys_or_values) {
    for (int64_t t = 0; t < p.k.view.tokens; ++t)
      for (int64_t h = 0; h < p.k.view.heads && !in_a_sequence(p, t); ++h)
        for (int64_t c = 0; c < p.k.view.head_dim; ++c)
          keys_or_values.set(t, h, c, std::numeric_limits<float>::quiet_NaN());
  }
};
RR_FOR_EVERY_CONFIG(CudaAttendRagged);

TEST_P(CudaAttendRagged, LengthsOfEveryKind) {
  const int64_t q_heads = GetParam().heads_per_tile;
  Problem p(ragged(4095, q_heads, 1));
  expect_right(p, full_routes());
  expect_right(p, random_routes(p.rows, q_heads, 0.3, 31));
}

// A caller may give room for more rows than there are: they are nobody's.
TEST_P(CudaAttendRagged, SpareRows) {
  ProblemArgs args = configured({.q_tokens = 300, .k_tokens = 300, .q_heads = 4, .kv_heads = 2});
  args.sequences = {{0, 100, 0, 100, 0}, {100, 200, 100, 200, 0}};
  for (const int64_t spare : {1, 5, 1000}) {
    SCOPED_TRACE(spare);
    Problem p(args);
    expect_right(p, full_routes(), {.spare_rows = spare});
    expect_right(p, scattered_routes(p.rows, 4, 0.5, 32), {.spare_rows = spare});
  }
}

// One sequence in an array is that sequence by value.
TEST_P(CudaAttendRagged, AnArrayOfOne) {
  Problem value(square(300)), array(square(300));
  attend_on_device(value, full_routes());
  attend_on_device(array, full_routes(), {.spare_rows = 2});
  expect_same_bits(value, array);
}

TEST_P(CudaAttendRagged, NotCausal) {
  ProblemArgs args = configured({.q_tokens = 500, .k_tokens = 700, .q_heads = 2, .kv_heads = 1});
  args.sequences = {{0, 200, 0, 30, 30}, {200, 0, 30, 10, 10}, {200, 300, 50, 650, 650}};
  Problem p(args);
  expect_right(p, full_routes(), {.causal = false});
  expect_right(p, scattered_routes(p.rows, 2, 0.5, 33), {.causal = false});
}

// More sequences than threads read at a time, and many times more rows than there are CTAs.
TEST_P(CudaAttendRagged, ManySequences) {
  Philox random(5, 79);
  ProblemArgs args = configured({.q_heads = 4, .kv_heads = 1});
  int64_t queries = 0, keys = 0;
  for (int i = 0; i < 1100; ++i) {
    const auto q_len = static_cast<int64_t>(random.below(20)),
               cached = static_cast<int64_t>(random.below(30));
    args.sequences.push_back({queries, q_len, keys, q_len + cached, cached});
    queries += q_len, keys += q_len + cached;
  }
  args.sequences.push_back({queries, 700, keys, 700, 0});
  args.q_tokens = queries + 700, args.k_tokens = keys + 700;
  Problem p(args);
  ASSERT_GT(p.rows.size() * 4, 132 * 4);
  expect_right(p, full_routes());
  expect_right(p, scattered_routes(p.rows, 4, 0.8, 34));
}

TEST_P(CudaAttendRagged, KeysOutsideOfEverySequenceDoNotLeak) {
  Problem p(ragged(700, 2, 1));
  spoil_other_keys(p, p.k);
  expect_right(p, full_routes());
  expect_right(p, random_routes(p.rows, 2, 0.3, 35));
}

// A cache has more room than it has tokens, and what lies there may be anything.
TEST_P(CudaAttendRagged, ValuesOutsideOfEverySequenceDoNotLeak) {
  Problem p(ragged(700, 2, 1));
  spoil_other_keys(p, p.v);
  expect_right(p, full_routes());
  ProblemArgs args = configured({.q_tokens = 100, .k_tokens = 1000, .q_heads = 2, .kv_heads = 1});
  args.sequences = {{0, 100, 0, 333, 233}};
  Problem cache(args);
  spoil_other_keys(cache, cache.v);
  expect_right(cache, full_routes());
  // Inside of the sequence, and nobody sees them yet.
  args.sequences = {{0, 100, 0, 140, 0}};
  Problem future(args);
  for (int64_t t = 100; t < 1000; ++t)
    for (int64_t c = 0; c < args.head_dim; ++c)
      future.v.set(t, 0, c, std::numeric_limits<float>::quiet_NaN());
  expect_right(future, full_routes());
}

TEST_P(CudaAttendRagged, SameBitsWithBatchMates) {
  ProblemArgs args = configured({.q_tokens = 500, .k_tokens = 500, .q_heads = 4, .kv_heads = 2});
  args.sequences = {{0, 100, 0, 100, 0}, {100, 150, 100, 333, 40}, {260, 200, 0, 500, 300}};
  Problem batch(args);
  attend_on_device(batch, full_routes());
  for (const Sequence& s : args.sequences) {
    ProblemArgs single = args;
    single.sequences = {s};
    Problem alone(single);
    attend_on_device(alone, full_routes());
    for (int64_t t = s.q_begin; t < s.q_begin + s.q_len; ++t)
      for (int64_t h = 0; h < 4; ++h) {
        ASSERT_EQ(batch.lse_log2[h * 500 + t], alone.lse_log2[h * 500 + t]) << t;
        for (int64_t c = 0; c < batch.q.view.head_dim; ++c)
          ASSERT_EQ(batch.out.get(t, h, c), alone.out.get(t, h, c)) << t;
      }
  }
}

}  // namespace
}  // namespace routerelay::cuda
