// SPDX-License-Identifier: Apache-2.0
#include "bench/paper/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/policy/select.h"

namespace routerelay::paper {
namespace {

constexpr double kPercent = 100;

void judge(Finding& f, const std::vector<Expected>& expected) {
  const auto found =
      std::find_if(expected.begin(), expected.end(), [&](const Expected& e) { return e.name == f.name; });
  if (found == expected.end()) return;
  f.expected = *found;
  const Expected& e = *found;
  // Sums in doubles may end a hair past a bound that they touch.
  constexpr double kSlack = 1e-9;
  if (e.rule == Rule::kWithin) f.missed = !(std::fabs(f.value - e.value) <= e.tolerance + kSlack);
  if (e.rule == Rule::kAtLeast) f.missed = !(f.value >= e.value - kSlack);
}

// pairs = rho + (1 - 1/L) w / N_k: holds exactly as long as no row is too short to relay.
double closed_form_gap(const Shape& s, const Challengers& c, const Outcome& o) {
  const double w = s.k + c.near + c.probes;
  return std::fabs(o.pairs() - (o.rerouted() + (1 - 1.0 / s.layers) * w / s.blocks));
}

// What a mode reads of its options, for programs and for people.
void describe(const Case& c, const Variant& v, VariantFindings& out) {
  const RelayOptions& r = v.relay;
  const Challengers challengers = challengers_of(r, c.shape.k, c.shape.k);
  const bool is_fixed = r.mode == Relay::kFixed, is_mass = r.mode == Relay::kMass,
             is_repair = r.mode == Relay::kRepair;
  std::vector<std::string> words;
  const auto say = [&](const char* name, const nlohmann::json& value, std::string word) {
    out.params[name] = value;
    if (!word.empty()) words.push_back(std::move(word));
  };
  if (!v.label.empty()) words.push_back(v.label);
  if (is_fixed) say("horizon", r.horizon, fmt::format("every {}", r.horizon));
  if (is_mass) say("delta", r.delta, fmt::format("{:.2f}", r.delta));
  if (is_mass || is_repair || r.mode == Relay::kStrict) {
    say("near", challengers.near, fmt::format("near {}", challengers.near));
    say("probes", challengers.probes,
        fmt::format("{} {}probes", challengers.probes, r.probe_forces ? "forcing " : ""));
  }
  if (is_mass || is_repair) {
    const bool usual = r.horizon == RelayOptions{}.horizon;
    say("horizon", r.horizon,
        usual                 ? ""
        : r.horizon == kNever ? "never refreshed"
                              : fmt::format("horizon {}", r.horizon));
  }
  if (is_repair) {
    say("probe_forces", r.probe_forces, "");
    if (r.max_swaps >= 0 && r.max_swaps < kAnySwaps)
      say("max_swaps", r.max_swaps, fmt::format("{} swaps", r.max_swaps));
  }
  if (r.mode == Relay::kScreen) say("wide", r.wide, "");
  if (r.mode == Relay::kScreen || r.mode == Relay::kCertify) say("near", challengers.near, "");
  out.mode = name_of(r.mode);
  out.label = words.empty() ? out.mode : fmt::format("{} {}", out.mode, fmt::join(words, ", "));
  out.params["mode"] = out.mode;
  out.params["variant"] = fmt::format("{}", fmt::join(words, ", "));
}

VariantFindings variant_findings(const Case& c, const Variant& v, const Outcome& o) {
  VariantFindings out;
  describe(c, v, out);
  const auto add = [&](const char* name, double value, const char* unit) {
    Finding f{name, value, unit, {}, false};
    judge(f, v.expected);
    out.findings.push_back(std::move(f));
  };
  add("rerouted", kPercent * o.rerouted(), "%");
  add("recall", kPercent * o.recall(), "%");
  if (c.has_mass) add("mass", kPercent * o.mass_recall(), "%");
  add("pairs", kPercent * o.pairs(), "%");
  add("cost", kPercent * (o.pairs() + kCheapPrice * o.screened()), "%");
  if (v.relay.mode == Relay::kScreen) {
    add("screened", kPercent * o.screened(), "%");
    add("cheap_recall", kPercent * o.cheap_recall(), "%");
  }
  if (v.relay.mode == Relay::kCertify) add("survivors", o.survivors() / c.shape.k, "k");
  if (v.relay.mode == Relay::kStrict)
    add("closed_form_gap", closed_form_gap(c.shape, challengers_of(v.relay, c.shape.k, c.shape.k), o),
        "share");
  return out;
}

}  // namespace

const Finding* VariantFindings::find(const std::string& name) const {
  const auto found =
      std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.name == name; });
  return found == findings.end() ? nullptr : &*found;
}

CaseFindings findings_of(const Case& c, const CaseOutcome& outcome) {
  CaseFindings out;
  const Shape& s = c.shape;
  if (c.experiment == 0) {
    out.title = fmt::format("Drift fitted to real models, overlap {:.2f}", c.drift);
    out.params = {{"experiment", "fitted"}, {"drift", "fitted"}, {"overlap", c.drift}};
  } else {
    out.title = fmt::format("Experiment {}, drift {}", c.experiment, c.drift);
    out.params = {{"experiment", c.experiment}, {"drift", c.drift}};
  }
  out.title += fmt::format(": {} layers, {} rows, {} blocks, k {}; {} seed{} from 1000", s.layers, s.rows,
                           s.blocks, s.k, c.repetitions, c.repetitions == 1 ? "" : "s");
  out.params.update({{"key_blocks", s.blocks},
                     {"rows", s.rows},
                     {"layers", s.layers},
                     {"k", s.k},
                     {"repetitions", c.repetitions}});
  for (size_t v = 0; v < c.variants.size(); ++v)
    out.variants.push_back(variant_findings(c, c.variants[v], outcome.variants[v]));
  for (size_t l = 0; l < c.overlaps.size(); ++l) {
    Finding f{"overlap", kPercent * outcome.overlaps[l], "%", {}, false};
    judge(f, {c.overlaps[l].second});
    out.overlaps.emplace_back(c.overlaps[l].first, std::move(f));
  }
  return out;
}

}  // namespace routerelay::paper
