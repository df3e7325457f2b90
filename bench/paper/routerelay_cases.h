// SPDX-License-Identifier: Apache-2.0
// The RouteRelay paper's experiments as data: what is generated, which policies run on it, and what should come out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/paper/drifting_scores.h"
#include "routerelay/options.hpp"

namespace routerelay::paper {

enum class Source : uint8_t {
  kPublished,  // printed in arXiv 2609.07306
  kDerived,    // its closed form pairs = rho + (1 - 1/L) w / N_k applied to what is printed
  kEarlier,    // measured by us with another implementation and generator, before this engine existed
};
enum class Rule : uint8_t {
  kWithin,  // `tolerance` points either side
  kAtLeast,
  kShown,  // printed beside ours, not checked: docs/reproduce.md says why
};

// A value to land on, in the unit of the finding of that name (findings.h).
struct Expected {
  std::string name;
  double value = 0;
  double tolerance = 0;
  Source source = Source::kPublished;
  Rule rule = Rule::kWithin;
};

struct Variant {
  std::string label;  // what its options do not say; may be empty
  RelayOptions relay;
  double cheap = 0;  // screen: correlation of the cheap router's scores with the costly ones
  std::vector<Expected> expected;
};

struct Case {
  int experiment = 0;  // 1, 2, 3; 0: drift fitted to real models, which the paper does not have
  double drift = 0;    // per layer; fitted: the overlap of adjacent layers' routes that it was fitted to
  Shape shape;
  int repetitions = 1;          // random seeds 1000, 1001, ...
  int first_counted_layer = 0;  // of recall and mass
  bool has_mass = false;        // scores are logits
  std::function<std::unique_ptr<DriftingScores>(uint64_t seed)> scores;
  std::vector<Variant> variants;
  std::vector<std::pair<int, Expected>> overlaps;  // of true routes, by lag in layers
};

// A horizon and a number of swaps that no run here reaches.
inline constexpr int kNever = 255, kAnySwaps = 1 << 30;

// In the order of the paper, then the fitted drift. `quick` draws about a tenth of the rows and doubles the tolerances
// around our earlier measurements; those around published values stay.
std::vector<Case> routerelay_cases(bool quick);

}  // namespace routerelay::paper
