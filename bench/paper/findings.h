// SPDX-License-Identifier: Apache-2.0
// Outcomes -> named findings, each beside the value that it should land on.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/paper/run_cases.h"

namespace routerelay::paper {

// rerouted, recall, mass, pairs, cost, screened, cheap_recall, overlap: %. survivors: multiples of k.
// closed_form_gap: a share.
struct Finding {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<Expected> expected;
  bool missed = false;
};

struct VariantFindings {
  std::string mode;
  std::string label;      // mode and what is special about it, for people
  nlohmann::json params;  // the same for programs
  std::vector<Finding> findings;

  const Finding* find(const std::string& name) const;
};

struct CaseFindings {
  std::string title;
  nlohmann::json params;
  std::vector<VariantFindings> variants;
  std::vector<std::pair<int, Finding>> overlaps;  // by lag
};

// A cheap score costs a quarter of a costly one: what sub 8x8 takes of sampled with 4 queries, the pair that the
// balanced preset uses. `cost` is pairs plus this share of screened.
inline constexpr double kCheapPrice = 0.25;

CaseFindings findings_of(const Case& c, const CaseOutcome& outcome);

}  // namespace routerelay::paper
