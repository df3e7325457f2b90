// SPDX-License-Identifier: Apache-2.0
// Tests of attend on the GPU that run once for every line of configs.def.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "cuda/attend/plan.h"
#include "cuda/device_attend.h"
#include "cuda/expected.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay::cuda {

// sm90's kernels run on Hopper alone, sm80's on everything later too.
inline bool device_runs(Arch arch) {
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         (arch == Arch::sm90 ? major == 9 && minor == 0 : major >= 8);
}

inline std::string config_name(const testing::TestParamInfo<AttendConfig>& info) {
  const AttendConfig& c = info.param;
  return fmt::format("{}_{}{}_{}_{}{}x{}", c.arch == Arch::sm90 ? "sm90" : "sm80", dtype_name(c.dtype),
                     is_quantised(c) ? "_e4m3" : "", c.head_dim, c.heads_per_tile == 2 ? "2x" : "", c.q_block,
                     c.k_block);
}

class OnDevice : public testing::TestWithParam<AttendConfig> {
 protected:
  void SetUp() override {
    if (!device_runs(GetParam().arch)) GTEST_SKIP() << "no CUDA device that runs it";
  }

  static support::ProblemArgs configured(support::ProblemArgs args) {
    const AttendConfig& config = GetParam();
    args.head_dim = config.head_dim;
    args.q_block = config.q_block, args.k_block = config.k_block;
    return with_dtype(args, config.dtype);
  }
  static support::ProblemArgs square(int64_t tokens, int64_t q_heads = 2, int64_t kv_heads = 1) {
    return configured({.q_tokens = tokens, .k_tokens = tokens, .q_heads = q_heads, .kv_heads = kv_heads});
  }

  // Lengths 1, `most`, 0 and 300 behind a cache of 200; queries without keys; keys visible to all. Four tokens before
  // the queries without keys and the last of all belong to no sequence: their NaN must stay.
  static support::ProblemArgs ragged(int64_t most, int64_t q_heads, int64_t kv_heads) {
    support::ProblemArgs args = configured(
        {.q_tokens = most + 505, .k_tokens = most + 605, .q_heads = q_heads, .kv_heads = kv_heads});
    args.sequences = {{0, 1, 0, 1, 0},
                      {1, most, 1, most, 0},
                      {most + 1, 0, most + 1, 0, 0},
                      {most + 1, 300, most + 1, 500, 200},
                      {most + 305, 70, most + 505, 0, 0},
                      {most + 375, 129, most + 508, 64, 1000}};
    return args;
  }

  // With this configuration's own kernel, not the device's choice. Keys and values that are to be e4m3 are rounded.
  // Where two heads share a tile, both have the first one's lists, in `expected` too.
  static DeviceAttend call_of(support::Problem& p, const Routes& routes, CallOptions options = {}) {
    options.arch = GetParam().arch;
    options.e4m3 = is_quantised(GetParam());
    options.shares_tiles = GetParam().heads_per_tile == 2;
    if (makes_pairs(p) && !routes.full && options.list_heads == 0) options.list_heads = p.q.view.heads / 2;
    return {p, routes, options};
  }
  static void attend_on_device(support::Problem& p, const Routes& routes, const CallOptions& options = {}) {
    p.poison();
    const DeviceAttend call = call_of(p, routes, options);
    if (makes_pairs(p) || GetParam().heads_per_tile == 1) {
      const AttendConfig chosen = config_for(plan_attend(call.args).value(), GetParam().arch, makes_pairs(p));
      EXPECT_EQ(chosen, GetParam()) << "another kernel than this test is of";
    }
    RR_ASSERT_OK(call.enqueue());
    call.fetch(p);
  }
  static void expect_right(support::Problem& p, const Routes& routes, const CallOptions& options = {}) {
    attend_on_device(p, routes, options);
    expected(p, routes).compare(p, options.lse);
  }
  // Of the problem as the call left it.
  static Expected expected(const support::Problem& p, const Routes& routes) {
    return {p, makes_pairs(p) && !routes.full ? in_pairs(p, routes) : routes, is_quantised(GetParam())};
  }
  static void expect_same_bits(const support::Problem& a, const support::Problem& b) {
    EXPECT_TRUE(a.out.same_bits(b.out));
    EXPECT_EQ(std::memcmp(a.lse_log2.data(), b.lse_log2.data(), a.lse_log2.size() * sizeof(float)), 0);
  }

 private:
  static bool makes_pairs(const support::Problem& p) {
    return GetParam().heads_per_tile == 2 && p.q.view.heads / p.k.view.heads % 2 == 0;
  }
  static Routes in_pairs(const support::Problem& p, const Routes& routes) {
    Routes out;
    out.lists.offsets.push_back(0);
    for (int64_t i = 0; i < routes.lists.size(); ++i) {
      const int64_t head = i / p.rows.size();
      const auto list = routes.lists[i - head % 2 * p.rows.size()];
      out.lists.ids.insert(out.lists.ids.end(), list.begin(), list.end());
      out.lists.offsets.push_back(static_cast<int64_t>(out.lists.ids.size()));
    }
    return out;
  }
};

#define RR_FOR_EVERY_CONFIG(suite)         \
  INSTANTIATE_TEST_SUITE_P(Configs, suite, \
                           testing::ValuesIn(attend_configs().begin(), attend_configs().end()), config_name)

// gtest prints a parameter it has no printer for byte by byte.
inline void PrintTo(const AttendConfig& config, std::ostream* os) {
  *os << config_name({config, 0});
}

// Each visible block with probability `share`, the diagonal no likelier than others: rows, or some queries of them,
// may see nothing.
inline Routes scattered_routes(const Rows& rows, int64_t q_heads, double share, uint64_t seed) {
  Philox random(seed, 78);
  return support::make_routes(rows, q_heads,
                              [&](int64_t, int64_t, int32_t) { return random.uniform() < share; });
}

}  // namespace routerelay::cuda
