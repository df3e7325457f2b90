// SPDX-License-Identifier: Apache-2.0
// Attend over e4m3 keys and values.
#include "cuda/attend_fixture.h"
#include "cuda/e4m3_cache.h"
#include "support/routes.h"

namespace routerelay::cuda {
namespace {

using support::full_routes;
using support::Problem;
using support::random_routes;

class CudaAttendE4M3 : public OnDevice {
 protected:
  // A query's second part is cut after three bits, as its first is; sums keep 13 bits of the largest term.
  static constexpr double kScoreError = 0x1p-8 + 0x1p-12;

  static void expect_right(Problem& p, const Routes& routes, const CallOptions& options = {}) {
    const E4M3Cache cache(p);
    p.poison();
    DeviceAttend call = call_of(p, routes, options);
    cache.give(call.args);
    RR_ASSERT_OK(call.enqueue());
    call.fetch(p);
    Expected(p, routes, kScoreError).compare(p, options.lse);
  }
};
INSTANTIATE_TEST_SUITE_P(Configs, CudaAttendE4M3, testing::ValuesIn(configs_of(true)), config_name);

TEST_P(CudaAttendE4M3, Lengths) {
  for (const int64_t tokens : {1, 16, 64, 127, 128, 129, 300, 1025}) {
    SCOPED_TRACE(tokens);
    Problem p(square(tokens, 4, 2));
    expect_right(p, full_routes());
    expect_right(p, random_routes(p.rows, 4, 0.5, 7));
  }
}

TEST_P(CudaAttendE4M3, RaggedBatch) {
  Problem p(ragged(1000, 4, 2));
  expect_right(p, full_routes());
  expect_right(p, scattered_routes(p.rows, 4, 0.6, 8));
}

TEST_P(CudaAttendE4M3, QueriesOfEveryMagnitude) {
  Problem p(square(300));
  for (int64_t t = 0; t < 300; ++t)
    for (int64_t c = 0; c < p.q.view.head_dim; ++c)
      p.q.set(t, 0, c, std::ldexp(p.q.get(t, 0, c), static_cast<int>(t % 9) - 6));
  for (int64_t c = 0; c < p.q.view.head_dim; ++c) p.q.set(40, 1, c, 0);
  expect_right(p, full_routes());
}

TEST_P(CudaAttendE4M3, NonFiniteQueriesDoNotSpread) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Problem p(square(200));
    p.q.set(50, 1, 3, bad);
    expect_right(p, full_routes());
    EXPECT_TRUE(std::isnan(p.out.get(50, 1, 0)));
  }
}

TEST_P(CudaAttendE4M3, SameBitsAgain) {
  Problem p(square(700, 4, 2));
  const Routes routes = random_routes(p.rows, 4, 0.4, 9);
  expect_right(p, routes);
  Problem again(square(700, 4, 2));
  expect_right(again, routes);
  expect_same_bits(p, again);
}

}  // namespace
}  // namespace routerelay::cuda
