// SPDX-License-Identifier: Apache-2.0
#include "bench/paper/routerelay_cases.h"

#include <array>

namespace routerelay::paper {
namespace {

constexpr int kDefaultNear = -1;
constexpr double kNone = -1;  // not measured

// Accepted distance from a published share, in points; the paper's own spread over random seeds is not printed.
constexpr double kPublishedTolerance = 2.5;
constexpr double kStrideTolerance = 0.5;
constexpr double kEarlierTolerance = 1;
constexpr double kOverlapTolerance = 1.5;  // a point, and half of one because the targets are whole percents

Expected published(const char* name, double value, double tolerance = kPublishedTolerance) {
  return {name, value, tolerance, Source::kPublished, Rule::kWithin};
}
Expected derived(const char* name, double value) {
  return {name, value, kPublishedTolerance, Source::kDerived, Rule::kWithin};
}
Expected earlier(const char* name, double value, double tolerance = kEarlierTolerance) {
  return {name, value, tolerance, Source::kEarlier, Rule::kWithin};
}
Expected shown(const char* name, double value) {
  return {name, value, 0, Source::kEarlier, Rule::kShown};
}
// What the paper prints as 100.00 or as more than 99.99.
Expected lossless(Source source = Source::kPublished) {
  return {"recall", 99.99, 0, source, Rule::kAtLeast};
}

Variant fixed(int every) {
  Variant v;
  v.relay.mode = Relay::kFixed;
  v.relay.horizon = every;
  return v;
}
Variant strict(int near, int probes) {
  Variant v;
  v.relay.mode = Relay::kStrict;
  v.relay.near_blocks = near;
  v.relay.probes = probes;
  v.expected = {{"closed_form_gap", 0, 1e-6, Source::kDerived, Rule::kWithin}};
  return v;
}
Variant mass(double delta, int near, int probes, int horizon) {
  Variant v;
  v.relay.mode = Relay::kMass;
  v.relay.delta = delta;
  v.relay.near_blocks = near;
  v.relay.probes = probes;
  v.relay.horizon = horizon;
  return v;
}
Variant repair(int near, int probes, int horizon, int max_swaps, bool probe_forces) {
  Variant v;
  v.relay.mode = Relay::kRepair;
  v.relay.near_blocks = near;
  v.relay.probes = probes;
  v.relay.horizon = horizon;
  v.relay.max_swaps = max_swaps;
  v.relay.probe_forces = probe_forces;
  return v;
}
Variant screen(std::string label, double cheap) {
  Variant v{std::move(label), {}, cheap, {}};
  v.relay.mode = Relay::kScreen;
  return v;
}
Variant certify(std::string label, int near) {
  Variant v{std::move(label), {}, 0, {}};
  v.relay.mode = Relay::kCertify;
  v.relay.near_blocks = near;
  return v;
}
Variant with(Variant v, const std::vector<Expected>& expected) {
  v.expected.insert(v.expected.end(), expected.begin(), expected.end());
  return v;
}

// Our modes with their defaults, for which nobody published anything.
void add_ours(std::vector<Variant>& to) {
  Variant by_default{"defaults", {}, 0, {}};
  by_default.relay.mode = Relay::kRepair;
  to.push_back(std::move(by_default));
  to.push_back(screen("", kCheapMiddle));
  to.push_back(certify("", kDefaultNear));
}

struct Drift1 {
  double drift;
  Source source;  // of the recall of a fixed stride of 4; pairs follow from rerouted where that is published
  double stride_recall, rerouted, pairs;
  // Repair with probes that force a row, in the order of experiment1: recall and pairs.
  std::array<std::array<double, 2>, 4> repair;
};
constexpr Source kPaper = Source::kPublished, kOurs = Source::kEarlier;
constexpr Drift1 kDrifts1[] = {
    {.01, kOurs, 98.1, 25.0, 49.2, {{{100, 35}, {100, 34}, {100, 36}, {100, 29}}}},
    {.03, kPaper, 94.9, 55.4, 79.6, {{{100, 39}, {100, 34}, {100, 36}, {99.97, 33}}}},
    {.06, kPaper, 91.2, 78.2, 102.4, {{{99.99, 46}, {99.93, 34}, {99.99, 36}, {99.70, 40}}}},
    {.10, kOurs, 86.9, 90.9, 115.2, {{{99.91, 54}, {99.25, 35}, {99.72, 36}, {99.12, 47}}}},
};
constexpr double kOnlyPlotted = .10;  // the drift of which the paper prints no number at all

Case experiment1(const Drift1& d, bool quick) {
  Case c{.experiment = 1, .drift = d.drift, .shape = {32, 384, 192, 12}, .repetitions = quick ? 1 : 10};
  c.scores = [shape = c.shape, drift = d.drift](uint64_t seed) {
    return accumulating_scores(shape, drift, seed);
  };
  const Expected stride{"recall", d.stride_recall, kStrideTolerance, d.source, Rule::kWithin};
  c.variants.push_back(with(fixed(4), {stride, earlier("pairs", 25)}));
  if (d.drift == kOnlyPlotted) {
    c.variants.push_back(
        with(strict(24, 12), {lossless(kOurs), earlier("rerouted", d.rerouted, kPublishedTolerance),
                              earlier("pairs", d.pairs, kPublishedTolerance)}));
  } else {
    c.variants.push_back(
        with(strict(24, 12), {lossless(), published("rerouted", d.rerouted), derived("pairs", d.pairs)}));
  }
  const std::array<Variant, 4> repairs = {repair(24, 12, 8, 4, true), repair(24, 12, 8, kAnySwaps, true),
                                          repair(36, 4, 8, kAnySwaps, true), repair(12, 12, 8, 4, true)};
  for (size_t i = 0; i < repairs.size(); ++i)
    c.variants.push_back(
        with(repairs[i], {earlier("recall", d.repair[i][0]), earlier("pairs", d.repair[i][1])}));
  add_ours(c.variants);
  return c;
}

Case experiment2(bool quick) {
  Case c{.experiment = 2, .drift = .003, .shape = {24, 256, 256, 12}, .repetitions = quick ? 2 : 5};
  c.scores = [shape = c.shape](uint64_t seed) { return product_scores(shape, .003, seed); };
  Variant random_only = strict(0, 12);
  random_only.label = "random only";
  c.variants.push_back(with(random_only, {published("recall", 92.32, kStrideTolerance),
                                          published("rerouted", 5.2), published("pairs", 14.2)}));
  // The text calls the first one near-miss only; its published pairs fit 24 of them.
  constexpr std::array<std::array<double, 3>, 4> kAblation = {
      {{24, 0, 50.8}, {12, 12, 50.8}, {24, 12, 55.3}, {48, 12, 64.2}}};
  for (const auto& [near, probes, pairs] : kAblation) {
    Variant v = strict(static_cast<int>(near), static_cast<int>(probes));
    v.label = probes == 0 ? "near-miss only" : "";
    c.variants.push_back(with(v, {lossless(), published("rerouted", 37.3), published("pairs", pairs)}));
  }
  add_ours(c.variants);
  return c;
}

struct Size3 {
  int blocks;
  double pairs, rerouted;
};
constexpr Size3 kSizes3[] = {{128, 51.6, 25.2}, {256, 41.4, 28.2}, {512, 38.4, 31.8}, {1024, 38.5, 35.2}};

Case experiment3(const Size3& size, bool quick) {
  // The paper's 3 seeds leave a spread of a point between sets of seeds.
  Case c{.experiment = 3, .drift = .002, .shape = {16, 192, size.blocks, 12}, .repetitions = quick ? 1 : 8};
  c.scores = [shape = c.shape](uint64_t seed) { return product_scores(shape, .002, seed); };
  c.variants.push_back(
      with(strict(12, 12), {lossless(), published("pairs", size.pairs), derived("rerouted", size.rerouted)}));
  add_ours(c.variants);
  return c;
}

// Recall, mass and pairs of one policy at one fitted drift.
struct Fit {
  double recall, mass, pairs;
};
struct FittedCase {
  double overlap;
  FittedDrift drift;
  std::array<double, 5> overlap_at;  // lags 1, 2, 4, 8, 16
  std::array<Fit, 11> fit;           // in the order of fitted_policies
  std::array<Fit, 4> forced;         // repair with probes that force, m = k/2, k, 2k, 3k; recall not measured
  std::array<double, 4> forced_rerouted;
  double survivors, survivors_of_route;  // certify, in multiples of k
};
constexpr FittedCase kFitted[] = {
    {.72,
     {.74, .21, .05, .95},
     {72, 70, 66, 61, 54},
     {{{76.6, 97.0, 25},
       {69.7, 95.1, 12.5},
       {100, 100, 108},
       {75.2, 96.9, 35},
       {86.6, 99.0, 68},
       {84.0, 98.2, 21.7},
       {91.0, 99.2, 24.5},
       {94.2, 99.6, 35.3},
       {97.0, 99.8, 29.9},
       {99.0, 99.9, 35.4},
       {91.3, 98.7, 22.4}}},
     {{{kNone, 98.8, 37}, {kNone, 99.3, 32}, {kNone, 99.8, 32}, {kNone, 99.9, 36}}},
     {27, 19, 15, 13},
     1.08,
     3.3},
    {.60,
     {.60, .28, .12, .97},
     {60, 59, 57, 53, 48},
     {{{68.2, 92.8, 25},
       {60.9, 90.2, 12.5},
       {100, 100, 108},
       {75.0, 96.1, 53},
       {88.5, 98.9, 85},
       {74.3, 94.8, 21.7},
       {82.4, 97.1, 24.5},
       {86.3, 98.1, 35.3},
       {91.6, 99.0, 29.9},
       {95.8, 99.6, 35.4},
       {85.2, 96.9, 22.4}}},
     {{{kNone, 97.3, 55}, {kNone, 98.0, 42}, {kNone, 99.1, 37}, {kNone, 99.6, 39}}},
     {45, 29, 19, 16},
     1.29,
     5.5},
    {.45,
     {.45, .30, .25, .97},
     {45, 44, 43, 40, 36},
     {{{56.6, 81.6, 25},
       {48.0, 76.5, 12.5},
       {100, 100, 108},
       {79.2, 95.6, 76},
       {90.9, 98.8, 97},
       {59.7, 84.1, 21.7},
       {67.6, 88.8, 24.5},
       {73.4, 91.4, 35.3},
       {78.7, 94.0, 29.9},
       {85.9, 96.5, 35.4},
       {71.7, 89.2, 22.4}}},
     {{{kNone, 96.1, 84}, {kNone, 94.9, 67}, {kNone, 95.9, 53}, {kNone, 97.3, 50}}},
     {74, 54, 34, 25},
     1.81,
     9.3},
};
constexpr std::array<int, 5> kLags = {1, 2, 4, 8, 16};

std::vector<Variant> fitted_policies(int k) {
  const auto adopting = [](int near, int horizon) { return repair(near, 12, horizon, kAnySwaps, false); };
  return {fixed(4),
          fixed(8),
          strict(12, 12),
          mass(.10, k, 12, 8),
          mass(.05, k, 12, 8),
          adopting(k / 2, 8),
          adopting(k, 8),
          adopting(k, 4),
          adopting(2 * k, 8),
          adopting(3 * k, 8),
          adopting(2 * k, kNever)};
}

std::vector<Expected> expected_of(Relay mode, const Fit& f) {
  // Not checked: how often mass fires hangs on the scale of the logits, which is fixed only on average over the rows
  // drawn. Sets of 48 and of 288 rows differ by 5 points here.
  if (mode == Relay::kMass)
    return {earlier("mass", f.mass), shown("recall", f.recall), shown("pairs", f.pairs)};
  std::vector<Expected> out{earlier("mass", f.mass), earlier("pairs", f.pairs)};
  if (f.recall != kNone) out.push_back(earlier("recall", f.recall));
  return out;
}

Case fitted(const FittedCase& f, bool quick) {
  Case c{.experiment = 0,
         .drift = f.overlap,
         .shape = {32, quick ? 48 : 288, 1024, 64},
         .first_counted_layer = 1,
         .has_mass = true};
  c.scores = [shape = c.shape, drift = f.drift](uint64_t seed) { return fitted_scores(shape, drift, seed); };
  const int k = c.shape.k;
  c.variants = fitted_policies(k);
  for (size_t i = 0; i < f.fit.size(); ++i)
    c.variants[i] = with(c.variants[i], expected_of(c.variants[i].relay.mode, f.fit[i]));
  const std::array<int, 4> nears = {k / 2, k, 2 * k, 3 * k};
  for (size_t i = 0; i < nears.size(); ++i) {
    const Variant v = repair(nears[i], 12, 8, kAnySwaps, true);
    c.variants.push_back(
        with(with(v, expected_of(v.relay.mode, f.forced[i])), {earlier("rerouted", f.forced_rerouted[i])}));
  }
  c.variants.push_back(screen("good cheap router", kCheapGood));
  c.variants.push_back(screen("middling cheap router", kCheapMiddle));
  c.variants.push_back(screen("poor cheap router", kCheapPoor));
  c.variants.push_back(with(certify("", kDefaultNear), {shown("survivors", f.survivors)}));
  c.variants.push_back(
      with(certify("cut at the route's worst", 0), {earlier("survivors", f.survivors_of_route, .1)}));
  for (size_t i = 0; i < kLags.size(); ++i)
    c.overlaps.emplace_back(kLags[i], earlier("overlap", f.overlap_at[i], kOverlapTolerance));
  return c;
}

}  // namespace

std::vector<Case> routerelay_cases(bool quick) {
  std::vector<Case> cases;
  for (const Drift1& d : kDrifts1) cases.push_back(experiment1(d, quick));
  cases.push_back(experiment2(quick));
  for (const Size3& s : kSizes3) cases.push_back(experiment3(s, quick));
  for (const FittedCase& f : kFitted) cases.push_back(fitted(f, quick));
  if (!quick) return cases;
  const auto widen = [](Expected& e) { e.tolerance *= e.source == Source::kEarlier ? 2 : 1; };
  for (Case& c : cases) {
    for (Variant& v : c.variants)
      for (Expected& e : v.expected) widen(e);
    for (auto& [lag, e] : c.overlaps) widen(e);
  }
  return cases;
}

}  // namespace routerelay::paper
