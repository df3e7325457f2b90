// SPDX-License-Identifier: Apache-2.0
// What attend on the GPU does with e4m3 keys and values only; all else that it does, the other tests try with them too.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cuda/attend_fixture.h"

namespace routerelay::cuda {
namespace {

using support::full_routes;
using support::Problem;
using support::ProblemArgs;
using support::random_routes;

std::vector<AttendConfig> quantised_configs() {
  std::vector<AttendConfig> configs;
  for (const AttendConfig& c : attend_configs())
    if (is_quantised(c)) configs.push_back(c);
  return configs;
}

class CudaAttendE4M3 : public OnDevice {
 protected:
  // Runs `call` and brings its results into p.
  static void run(DeviceAttend& call, Problem& p) {
    p.poison();
    call.poison_results(p);
    RR_ASSERT_OK(call.enqueue());
    call.fetch(p);
  }
};
INSTANTIATE_TEST_SUITE_P(Configs, CudaAttendE4M3, testing::ValuesIn(quantised_configs()), config_name);

// A query alone with one key is answered by that key's value, whatever it is.
TEST_P(CudaAttendE4M3, EveryValueArrivesExactly) {
  constexpr int64_t kTokens = 4;
  ProblemArgs args = square(kTokens, 1, 1);
  for (int64_t t = 0; t < kTokens; ++t) args.sequences.push_back({t, 1, t, 1, 0});
  Problem p(args);
  const auto value = [&](int64_t t, int64_t c) {
    __nv_fp8_e4m3 x;
    x.__x = static_cast<uint8_t>(t * p.v.view.head_dim + c);  // each twice, NaN among them
    return static_cast<float>(x);
  };
  p.v.fill([&](int64_t t, int64_t, int64_t c) { return value(t, c); });
  attend_on_device(p, full_routes());
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t c = 0; c < p.v.view.head_dim; ++c) {
      if (std::isnan(value(t, c)))
        EXPECT_TRUE(std::isnan(p.out.get(t, 0, c))) << t << " " << c;
      else
        EXPECT_EQ(p.out.get(t, 0, c), value(t, c)) << t << " " << c;
    }
}

// Queries are cut in two parts relative to each one's own largest element.
TEST_P(CudaAttendE4M3, QueriesOfEveryMagnitude) {
  Problem p(square(300));
  for (int64_t t = 0; t < 300; ++t)
    for (int64_t c = 0; c < p.q.view.head_dim; ++c) {
      p.q.set(t, 0, c, std::ldexp(p.q.get(t, 0, c), static_cast<int>(t % 9) - 6));
      p.q.set(t, 1, c, std::ldexp(p.q.get(t, 1, c), static_cast<int>(-c % 14)));
    }
  for (int64_t c = 0; c < p.q.view.head_dim; ++c) p.q.set(40, 1, c, 0);
  expect_right(p, full_routes());
  expect_right(p, random_routes(p.rows, 2, 0.5, 61));
}

// Without scales keys and values count as they are. The scales of the cache are powers of two: not a bit differs, but
// of numbers so small that f16 has fewer bits for one of the two.
TEST_P(CudaAttendE4M3, NoScalesAreOnes) {
  Problem with(square(300, 2, 1)), without(square(300, 2, 1));
  attend_on_device(with, full_routes());
  DeviceAttend call = call_of(without, full_routes());
  call.args.k_scale = call.args.v_scale = nullptr;
  call.args.scale *= call.k_scale(0);
  run(call, without);
  const float smallest = GetParam().dtype == DType::kF16 ? 0x1p-24F : 0;
  for (int64_t t = 0; t < 300; ++t)
    for (int64_t h = 0; h < 2; ++h) {
      ASSERT_EQ(with.lse_log2[h * 300 + t], without.lse_log2[h * 300 + t]) << t;
      for (int64_t c = 0; c < with.q.view.head_dim; ++c)
        ASSERT_NEAR(with.out.get(t, h, c), call.v_scale(0) * without.out.get(t, h, c), smallest) << t;
    }
}

// A factor that vanished would make NaN of what is hidden.
TEST_P(CudaAttendE4M3, ScalesAsSmallAsTheyComeHideTheFutureToo) {
  Problem p(square(200, 1, 1));
  for (int64_t c = 0; c < p.q.view.head_dim; ++c) p.q.set(40, 0, c, 0);
  DeviceAttend call = call_of(p, full_routes());
  const float k_scale = 1e-37F;
  const DeviceBuffer k_there(&k_scale, sizeof k_scale);
  call.args.k_scale = k_there.as<float>();
  run(call, p);
  p.scale *= k_scale / call.k_scale(0);
  expected(p, full_routes()).compare(p);
}

// Scales of any size, each head's own.
TEST_P(CudaAttendE4M3, ScalesMultiply) {
  Problem p(square(300, 4, 2));
  attend_on_device(p, full_routes());
  Problem scaled(square(300, 4, 2));
  DeviceAttend call = call_of(scaled, full_routes());
  const float k_scale[] = {0.7F * call.k_scale(0), 0.7F * call.k_scale(1)};
  const float v_scale[] = {1.3F * call.v_scale(0), 0.3F * call.v_scale(1)};
  const DeviceBuffer k_there(k_scale, sizeof k_scale), v_there(v_scale, sizeof v_scale);
  call.args.k_scale = k_there.as<float>();
  run(call, scaled);
  scaled.scale *= 0.7F;
  expected(scaled, full_routes()).compare(scaled);
  const Problem before = std::move(scaled);
  Problem after(square(300, 4, 2));
  call.args.v_scale = v_there.as<float>();
  run(call, after);
  const float bits = GetParam().dtype == DType::kBF16 ? 0x1p-7F : 0x1p-10F;  // of an output, rounded twice
  for (int64_t t = 0; t < 300; ++t)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t c = 0; c < p.q.view.head_dim; ++c) {
        const float wanted = (h < 2 ? 1.3F : 0.3F) * before.out.get(t, h, c);
        ASSERT_NEAR(after.out.get(t, h, c), wanted, std::fabs(wanted) * bits + 0x1p-23F) << t << " " << h;
      }
}

}  // namespace
}  // namespace routerelay::cuda
