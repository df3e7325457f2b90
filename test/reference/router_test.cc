// SPDX-License-Identifier: Apache-2.0
// centroid, sub, sampled and antidiag against their formulas written out a second time, and what holds for all routers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "reference/scored.h"

namespace routerelay {
namespace {

using support::with_dtype;

// Softmax over (block, logit) pairs, summed per block.
using Logits = std::vector<std::pair<int32_t, double>>;
std::map<int32_t, double> mass_per_block(const Logits& logits) {
  double total = 0;
  std::map<int32_t, double> mass;
  for (const auto& [block, x] : logits) total += std::exp(x);
  for (const auto& [block, x] : logits) mass[block] += std::exp(x) / total;
  return mass;
}
// Mean over queries, for `ids` in order.
std::vector<double> mean_mass(const std::vector<Logits>& queries, const std::vector<int32_t>& ids) {
  std::map<int32_t, double> sum;
  int count = 0;
  for (const Logits& logits : queries) {
    if (logits.empty()) continue;
    ++count;
    for (const auto& [block, mass] : mass_per_block(logits)) sum[block] += mass;
  }
  std::vector<double> out;
  for (int32_t id : ids) out.push_back(count == 0 ? 0 : sum[id] / count);
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "block " << i;
}

// An odd prefix, a tail row of 37 queries, grouped heads, a second sequence: what routers must get right.
ProblemArgs awkward() {
  ProblemArgs args{.q_tokens = 180, .k_tokens = 700, .q_heads = 4, .kv_heads = 2};
  args.sequences = {{0, 15, 0, 20, 5}, {20, 101, 30, 300, 199}, {121, 10, 330, 300, 100}};
  return args;
}

TEST(Centroid, IsTheDotProductOfMeans) {
  Scored s(awkward());
  for (int64_t row = 0; row < s.p.rows.size(); ++row)
    for (int head : {0, 3}) {
      const Row& r = s.p.rows.rows[static_cast<size_t>(row)];
      const auto ids = s.visible(row);
      std::vector<double> want;
      for (int32_t id : ids) {
        const BlockRun& run = s.p.rows.runs[static_cast<size_t>(r.sequence)];
        const int64_t first = id * 64, end = std::min<int64_t>(first + 64, run.k_len);
        double sum = 0;  // the mean of products is the product of means
        for (int64_t j = first; j < end; ++j)
          for (int64_t i = 0; i < r.q_count; ++i)
            sum += dot(s.p, r.q_begin + i, head, r.k_begin + j, head / 2);
        want.push_back(static_cast<double>(s.p.scale) * sum / static_cast<double>((end - first) * r.q_count));
      }
      expect_near(s.score({.kind = Router::kCentroid}, row, head, ids), want, 1e-6);
    }
}

TEST(Sampled, SamplesTheRightQueries) {
  // A query made of its own index, and keys that tell it: which samples took part can be read off the scores.
  for (const auto& [tokens, samples, want] : std::vector<std::tuple<int64_t, int, std::vector<int64_t>>>{
           {64, 4, {15, 31, 47, 63}},
           {64, 8, {7, 15, 23, 31, 39, 47, 55, 63}},
           {64, 1, {63}},
           {10, 4, {2, 4, 7, 9}},
           {3, 4, {0, 1, 2}},  // 0, 1, 2, 2: the double counts once
           {1, 4, {0}}}) {
    // Query t loves block t and nothing else.
    Scored s({.q_tokens = tokens, .k_tokens = 64 * 64 + tokens, .head_dim = 64});
    s.p.q.fill([](int64_t t, int64_t, int64_t c) { return c == t ? 1000 : 0; });
    s.p.k.fill([](int64_t t, int64_t, int64_t c) { return c == t / 64 ? 1 : 0; });
    const auto ids = s.visible(0);
    const auto score = s.score({.kind = Router::kSampled, .samples = samples}, 0, 0, ids);
    for (int64_t t = 0; t < tokens; ++t) {
      const bool taken = std::find(want.begin(), want.end(), t) != want.end();
      EXPECT_NEAR(score[static_cast<size_t>(t)], taken ? 1.0 / static_cast<double>(want.size()) : 0.0, 1e-6)
          << tokens << " tokens, " << samples << " samples, query " << t;
    }
  }
}

std::vector<double> brute_sampled(const Scored& s, int64_t row, int head, int samples,
                                  const std::vector<int32_t>& ids) {
  const Row& r = s.p.rows.rows[static_cast<size_t>(row)];
  std::set<int64_t> queries;
  for (int i = 0; i < samples; ++i)
    queries.insert(static_cast<int64_t>(std::ceil((i + 1) * static_cast<double>(r.q_count) / samples)) - 1);
  std::vector<Logits> logits;
  for (int64_t i : queries) {
    logits.emplace_back();
    for (int32_t id : ids)
      for (int64_t j = id * 64; j < id * 64 + 64; ++j)
        if (j <= r.position + i && j < s.p.rows.runs[static_cast<size_t>(r.sequence)].k_len)
          logits.back().emplace_back(id, s.p.scale * dot(s.p, r.q_begin + i, head, r.k_begin + j, head / 2));
  }
  return mean_mass(logits, ids);
}

TEST(Sampled, IsTheMeanOfItsQueriesSoftmax) {
  Scored s(awkward());
  for (int64_t row = 0; row < s.p.rows.size(); ++row)
    for (int samples : {1, 4, 7}) {
      auto ids = s.visible(row);
      expect_near(s.score({.kind = Router::kSampled, .samples = samples}, row, 1, ids),
                  brute_sampled(s, row, 1, samples, ids), 1e-6);
      if (ids.size() < 3) continue;
      ids = {1, ids.back()};  // candidates: the softmax is over them alone
      expect_near(s.score({.kind = Router::kSampled, .samples = samples}, row, 2, ids),
                  brute_sampled(s, row, 2, samples, ids), 1e-6);
    }
}

TEST(Sampled, ARequestMayNameItsOwnSamples) {
  Scored s(awkward());
  const RouterOptions two{.kind = Router::kSampled, .samples = 2};
  for (int64_t row = 0; row < s.p.rows.size(); ++row) {
    const auto ids = s.visible(row);
    expect_near(s.score(two, row, 1, ids), brute_sampled(s, row, 1, 2, ids), 1e-6);
    expect_near(s.score(two, row, 1, ids, nullptr, 9), brute_sampled(s, row, 1, 9, ids), 1e-6);
  }
}

TEST(Sampled, AQueryThatSeesNoScoredKeyHasNoVote) {
  Scored s({.q_tokens = 128, .k_tokens = 128, .q_block = 128});
  // Row of 128 queries; block 1 is ahead of the samples at 31 and 63, so only 95 and 127 vote.
  EXPECT_NEAR(s.score({.kind = Router::kSampled, .samples = 4}, 0, 0, {1})[0], 1, 1e-6);
}

std::vector<double> brute_sub(const Scored& s, int64_t row, int head, int a, int b,
                              const std::vector<int32_t>& ids) {
  const Row& r = s.p.rows.rows[static_cast<size_t>(row)];
  const BlockRun& run = s.p.rows.runs[static_cast<size_t>(r.sequence)];
  const int64_t dim = s.p.q.view.head_dim;
  const auto rounded_mean = [&](const support::OwnedTensor& t, int64_t begin, int64_t end, int64_t h,
                                int64_t c) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += static_cast<double>(t.get(i, h, c));
    return static_cast<double>(
        bf16_to_f32(f32_to_bf16(static_cast<float>(sum / static_cast<double>(end - begin)))));
  };
  std::vector<Logits> logits;
  for (int64_t u = 0; u < r.q_count; u += a) {
    const int64_t u_end = std::min<int64_t>(u + a, r.q_count);
    logits.emplace_back();
    for (int32_t id : ids)
      for (int64_t v = id * 64; v < std::min<int64_t>(id * 64 + 64, run.k_len); v += b) {
        if (v > r.position + u_end - 1) continue;
        const int64_t v_end = std::min<int64_t>(v + b, run.k_len);
        double sum = 0;
        for (int64_t c = 0; c < dim; ++c)
          sum += rounded_mean(s.p.q, r.q_begin + u, r.q_begin + u_end, head, c) *
                 rounded_mean(s.p.k, r.k_begin + v, r.k_begin + v_end, head / 2, c);
        logits.back().emplace_back(id, s.p.scale * sum);
      }
  }
  return mean_mass(logits, ids);
}

TEST(Sub, IsTheSoftmaxOfGroupMeans) {
  for (const auto& [a, b] : std::vector<std::pair<int, int>>{{8, 8}, {16, 4}, {64, 64}}) {
    Scored s(awkward(), b);
    for (int64_t row = 0; row < s.p.rows.size(); ++row) {
      auto ids = s.visible(row);
      const RouterOptions options{.kind = Router::kSub, .sub_q = a, .sub_k = b};
      expect_near(s.score(options, row, 3, ids), brute_sub(s, row, 3, a, b, ids), 1e-6);
      if (ids.size() < 3) continue;
      ids = {0, 2};
      expect_near(s.score(options, row, 3, ids), brute_sub(s, row, 3, a, b, ids), 1e-6);
    }
  }
}

std::vector<double> brute_antidiag(const Scored& s, int64_t row, int head, int64_t stride,
                                   const std::vector<int32_t>& ids) {
  const Row& r = s.p.rows.rows[static_cast<size_t>(row)];
  const int64_t k_end =
      std::min(s.p.rows.runs[static_cast<size_t>(r.sequence)].k_len, r.position + r.q_count);
  std::vector<Logits> logits;
  for (int64_t u = 0; u < r.q_count; u += stride) {
    const int64_t last = r.position + std::min<int64_t>(u + stride, r.q_count) - 1;
    logits.emplace_back();
    for (int32_t id : ids)
      for (int64_t v = id * 64; v < std::min<int64_t>(id * 64 + 64, k_end); v += stride) {
        if (v > last) continue;
        double sum = 0;
        for (int64_t i = 0; i < stride; ++i)
          for (int64_t j = 0; j < stride; ++j)
            if (i + j == stride - 1 && u + i < r.q_count && v + j < k_end)
              sum += dot(s.p, r.q_begin + u + i, head, r.k_begin + v + j, head / 2);
        logits.back().emplace_back(id, s.p.scale * sum / static_cast<double>(stride));
      }
  }
  return mean_mass(logits, ids);
}

TEST(Antidiag, IsTheSoftmaxOfAntidiagonalSums) {
  Scored s(awkward());
  for (int stride : {1, 8, 16})
    for (int64_t row = 0; row < s.p.rows.size(); ++row) {
      const auto ids = s.visible(row);
      expect_near(s.score({.kind = Router::kAntidiag, .stride = stride}, row, 2, ids),
                  brute_antidiag(s, row, 2, stride, ids), 1e-6);
    }
}

// Groups of one token are tokens: three routers become one, the true mass of every block.
TEST(SoftmaxRouters, WithGroupsOfOneAreTheTrueMass) {
  Scored s(with_dtype(awkward(), DType::kBF16), 1);  // bf16: sub's rounding is exact
  for (int64_t row = 0; row < s.p.rows.size(); ++row) {
    const auto ids = s.visible(row);
    const auto all = s.score({.kind = Router::kSampled, .samples = 64}, row, 0, ids);
    EXPECT_EQ(all, s.score({.kind = Router::kAntidiag, .stride = 1}, row, 0, ids));
    EXPECT_EQ(all, s.score({.kind = Router::kSub, .sub_q = 1, .sub_k = 1}, row, 0, ids));
  }
}

TEST(SoftmaxRouters, SumToOneOverTheScoredBlocks) {
  Scored s(awkward());
  for (Router kind : {Router::kSub, Router::kSampled, Router::kAntidiag})
    for (int64_t row = 0; row < s.p.rows.size(); ++row) {
      const auto score = s.score({.kind = kind}, row, 0, s.visible(row));
      EXPECT_NEAR(std::accumulate(score.begin(), score.end(), 0.0), 1, 1e-6) << name_of(kind);
    }
}

// What follows a row must not move its scores, or a prompt in chunks would route differently from the whole.
TEST(Routers, ScoreARowTheSameInAChunkAndInTheWhole) {
  for (int64_t offset : {0, 63, 128}) {
    ProblemArgs args{.q_tokens = 256, .k_tokens = 256 + offset + 64 * 20, .q_heads = 2};
    Scored whole(args);
    ProblemArgs chunk_args = args;
    const int64_t first = 256 + offset + 64 * 20 - 256;
    chunk_args.sequences = {
        {128, 64, 0, first + 192, first + 128}};  // the third row, its cache ending with it
    Scored chunk(chunk_args);
    const auto ids = whole.visible(2);
    ASSERT_EQ(ids, chunk.visible(0));
    const size_t last = ids.size() - 1;  // the diagonal is forced: its pooled scores may see the future
    for (Router kind : {Router::kCentroid, Router::kSub, Router::kSampled, Router::kAntidiag, Router::kBox,
                        Router::kBall}) {
      std::vector<float> rescue_a, rescue_b;
      auto a = whole.score({.kind = kind}, 2, 1, ids, &rescue_a),
           b = chunk.score({.kind = kind}, 0, 1, ids, &rescue_b);
      if (!is_softmax(kind)) a[last] = b[last] = rescue_a[last] = rescue_b[last] = 0;
      const bool pooled_diagonal = kind == Router::kSub && offset % 8 != 0;
      if (!pooled_diagonal) {
        EXPECT_EQ(a, b) << name_of(kind) << " at offset " << offset;
      }
      if (kind == Router::kBall) {
        EXPECT_EQ(rescue_a, rescue_b);
      }
    }
  }
}

TEST(Routers, NaNAndInfinityInTheInputCrashNothing) {
  Scored s({.q_tokens = 64, .k_tokens = 64 * 20});
  s.p.q.set(3, 0, 0, std::numeric_limits<float>::quiet_NaN());
  s.p.k.set(70, 0, 0, std::numeric_limits<float>::infinity());
  support::TestExec exec;
  RR_ASSERT_OK(reference::summarize({s.p.k.view, s.p.v.view, s.p.rows, kEverything, s.summary}, exec.exec));
  std::vector<float> rescue;
  for (Router kind :
       {Router::kCentroid, Router::kSub, Router::kSampled, Router::kAntidiag, Router::kBox, Router::kBall})
    EXPECT_EQ(s.score({.kind = kind}, 0, 0, s.visible(0), &rescue).size(), 20u);
}

}  // namespace
}  // namespace routerelay
