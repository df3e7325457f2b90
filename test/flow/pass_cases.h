// SPDX-License-Identifier: Apache-2.0
// What the cases of whole layers share: an engine per back end, and options that route every row.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "support/backends.h"
#include "support/matches.h"
#include "support/routes.h"
#include "support/status.h"

namespace routerelay {

using support::Backend;
using support::exact_attention;
using support::expect_matches;
using support::full_routes;
using support::Problem;
using support::ProblemArgs;
using support::with_dtype;

inline constexpr std::array kRouters = {Router::kCentroid, Router::kSub, Router::kSampled,
                                        Router::kAntidiag, Router::kBox, Router::kBall};

// Every row and layer routed, no relay: a case switches on what it is about.
inline Options routed(Router router = Router::kSampled) {
  Options o = Options::from_preset("balanced").value();
  o.router.kind = router;
  o.relay.mode = Relay::kOff;
  o.relay.auto_off = false;
  o.local_blocks = 0;  // the rules as the cases' origins have them, not as the preset tunes them
  o.selection.least = 4;
  o.dense_layers = 0;
  o.dense_below = 0;
  return o;
}

class PassCases : public testing::TestWithParam<Backend> {
 protected:
  Engine engine(int threads = 2) const {
    Result<Engine> e = Engine::create(GetParam().engine_options(threads));
    EXPECT_TRUE(e.ok()) << e.status().message();
    return std::move(e).value();
  }
  static Pass begin(Engine& e, const Options& options, bool final_chunk = false) {
    Result<Pass> pass = Pass::begin(e, options, {.final_chunk = final_chunk});
    EXPECT_TRUE(pass.ok()) << pass.status().message();
    return std::move(pass).value();
  }
  // The last layer's lists, or all blocks when it was dense.
  static Routes routes_of(const Pass& pass) {
    if (pass.row_offsets().empty()) return full_routes();
    Routes routes;
    routes.lists.offsets.assign(pass.row_offsets().begin(), pass.row_offsets().end());
    routes.lists.ids.assign(pass.picked().begin(), pass.picked().end());
    return routes;
  }
  void expect_exact(const Problem& p, const Routes& routes) const {
    expect_matches(p, exact_attention(p, routes), GetParam().tolerance(p));
  }
};
}  // namespace routerelay
