// SPDX-License-Identifier: Apache-2.0
// One attention layer of a 4,096-token prompt: yours are q, k and v; printed is what was skipped.
#include <cstdio>
#include <routerelay/engine.hpp>
#include <vector>

int main() {
  namespace rr = routerelay;
  constexpr int64_t kTokens = 4096, kHeads = 8, kKvHeads = 2, kDim = 64;
  std::vector<float> q(kTokens * kHeads * kDim), k(kTokens * kKvHeads * kDim), v(k), out(q);
  auto engine = rr::Engine::create();
  auto options = rr::Options::from_preset("balanced");
  for (const rr::Status& made : {engine.status(), options.status()})
    if (!made.ok()) return std::puts(made.message().c_str()), 1;
  auto pass = rr::Pass::begin(engine.value(), options.value());
  auto status = pass->layer({.q = rr::contiguous(q.data(), rr::DType::kF32, kTokens, kHeads, kDim),
                             .k = rr::contiguous(k.data(), rr::DType::kF32, kTokens, kKvHeads, kDim),
                             .v = rr::contiguous(v.data(), rr::DType::kF32, kTokens, kKvHeads, kDim),
                             .out = rr::contiguous(out.data(), rr::DType::kF32, kTokens, kHeads, kDim),
                             .layer = 2});  // its index: 0 and 1 are dense, later ones relay to each other
  std::puts(status.ok() ? pass->report().to_text().c_str() : status.message().c_str());
  return status.ok() ? 0 : 1;
}
