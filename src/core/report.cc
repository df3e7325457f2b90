// SPDX-License-Identifier: Apache-2.0
#include "routerelay/report.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace routerelay {
namespace {

constexpr std::array<const char*, kCauses> kNames = {"none",  "first",  "age",   "fired", "probe",
                                                     "swaps", "anchor", "short", "dense"};

struct Totals {
  int64_t visible = 0, visited = 0, routed_visible = 0, routed_visited = 0, scored = 0, audited = 0;
  double ids = 0, mass = 0;
};
Totals total(const Report& report) {
  Totals t;
  for (const LayerReport& l : report.layers) {
    t.visible += l.visible_blocks;
    t.visited += l.visited_blocks;
    t.routed_visible += l.routed_visible_blocks;
    t.routed_visited += l.routed_visited_blocks;
    t.scored += l.scored_blocks;
    t.audited += l.audited_rows;
    t.ids += l.audited_id_recall;
    t.mass += l.audited_mass_recall;
  }
  return t;
}
double ratio(double a, double b, double none) {
  return b > 0 ? a / b : none;
}
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

nlohmann::json json_number(double x) {
  return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(nullptr);
}

nlohmann::json layer_json(const LayerReport& l) {
  nlohmann::json causes = nlohmann::json::object();
  for (size_t i = 0; i < kCauses; ++i)
    if (l.rows_by_cause[i] > 0) causes[kNames[i]] = l.rows_by_cause[i];
  const auto audited = static_cast<double>(l.audited_rows);
  return {{"layer", l.layer},
          {"dense", l.dense},
          {"relayed", l.relayed},
          {"auto_off", l.auto_off},
          {"rows", l.rows},
          {"routed_rows", l.routed_rows},
          {"kept_rows", l.kept_rows},
          {"rows_by_cause", causes},
          {"visible_blocks", l.visible_blocks},
          {"visited_blocks", l.visited_blocks},
          {"routed_visible_blocks", l.routed_visible_blocks},
          {"routed_visited_blocks", l.routed_visited_blocks},
          {"scored_blocks", l.scored_blocks},
          {"screened_blocks", l.screened_blocks},
          {"swaps", l.swaps},
          {"survivors", l.survivors},
          {"audited_rows", l.audited_rows},
          {"id_recall", json_number(ratio(l.audited_id_recall, audited, kNaN))},
          {"mass_recall", json_number(ratio(l.audited_mass_recall, audited, kNaN))},
          {"summarize_us", l.summarize_us},
          {"relay_us", l.relay_us},
          {"route_us", l.route_us},
          {"attend_us", l.attend_us},
          {"summary_bytes", l.summary_bytes},
          {"workspace_bytes", l.workspace_bytes},
          {"kv_bytes_16bit", l.kv_bytes_16bit}};
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-";
}

}  // namespace

const char* name_of(Cause cause) {
  return kNames[static_cast<size_t>(cause)];
}

double Report::density() const {
  const Totals t = total(*this);
  return ratio(static_cast<double>(t.routed_visited), static_cast<double>(t.routed_visible), 1);
}
double Report::model_density() const {
  const Totals t = total(*this);
  return ratio(static_cast<double>(t.visited), static_cast<double>(t.visible), 1);
}
double Report::scored_share() const {
  const Totals t = total(*this);
  return ratio(static_cast<double>(t.scored), static_cast<double>(t.routed_visible), 0);
}
double Report::id_recall() const {
  const Totals t = total(*this);
  return ratio(t.ids, static_cast<double>(t.audited), kNaN);
}
double Report::mass_recall() const {
  const Totals t = total(*this);
  return ratio(t.mass, static_cast<double>(t.audited), kNaN);
}

std::string Report::to_json() const {
  nlohmann::json all = nlohmann::json::array();
  for (const LayerReport& l : layers) all.push_back(layer_json(l));
  return nlohmann::json{{"preset", preset},
                        {"backend", backend},
                        {"isa", isa},
                        {"threads", threads},
                        {"density", density()},
                        {"model_density", model_density()},
                        {"scored_share", scored_share()},
                        {"id_recall", json_number(id_recall())},
                        {"mass_recall", json_number(mass_recall())},
                        {"layers", all}}
      .dump();
}

std::string Report::to_text() const {
  std::string text = fmt::format(
      "{} on {} ({}, {} threads): density {} of routed rows, {} of the model; scored {}; mass kept {}, ids "
      "{}\n",
      preset, backend, isa, threads, percent(density()), percent(model_density()), percent(scored_share()),
      percent(mass_recall()), percent(id_recall()));
  text +=
      fmt::format("{:>5}  {:<7}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}  {:>9}  {:>9}  {:>9}\n", "layer", "kind",
                  "density", "scored", "kept", "mass", "summ. ms", "relay ms", "route ms", "attend ms");
  for (const LayerReport& l : layers) {
    const auto routed = static_cast<double>(l.routed_visible_blocks);
    text += fmt::format(
        "{:>5}  {:<7}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9.2f}  {:>9.2f}  {:>9.2f}  {:>9.2f}\n", l.layer,
        l.dense      ? "dense"
        : l.auto_off ? "off"
        : l.relayed  ? "relayed"
                     : "first",
        percent(ratio(static_cast<double>(l.routed_visited_blocks), routed, 1)),
        percent(ratio(static_cast<double>(l.scored_blocks), routed, 0)),
        percent(ratio(static_cast<double>(l.kept_rows), static_cast<double>(l.routed_rows), 0)),
        percent(ratio(l.audited_mass_recall, static_cast<double>(l.audited_rows), kNaN)),
        l.summarize_us / 1e3, l.relay_us / 1e3, l.route_us / 1e3, l.attend_us / 1e3);
  }
  return text;
}

}  // namespace routerelay
