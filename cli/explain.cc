// SPDX-License-Identifier: Apache-2.0
// routerelay explain: why one row of a traced layer took its blocks, and what it missed.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/row_study.h"
#include "cli/scores.h"

namespace routerelay::cli {
namespace {

constexpr size_t kMissedShown = 8;  // of the blocks that hold most of what was missed

struct ExplainArgs {
  std::string path;
  std::string preset = default_preset();
  std::vector<std::string> sets;
  RowStudyArgs row;
  EngineOptions engine;
};

std::string how(const RowStudy& s, const Options& o) {
  if (s.dense)
    return o.dense || s.visible_keys >= o.dense_below
               ? "dense: the preset or the layer sees every block"
               : fmt::format("dense: {} visible keys are fewer than {}", s.visible_keys, o.dense_below);
  if (s.cause != Cause::kNone) return fmt::format("every visible block was scored ({})", name_of(s.cause));
  return fmt::format("relay {}: scored against the route of layer {}", name_of(o.relay.mode), s.layer_before);
}

double mass_of(const RowStudy& s, bool picked) {
  double mass = 0;
  for (const BlockStudy& b : s.blocks)
    if ((b.why != Why::kNotPicked) == picked) mass += b.mass;
  return mass;
}

std::string block_table(const RowStudy& s, const std::vector<BlockStudy>& blocks, const Options& o,
                        const Style& style) {
  std::vector<std::string> header = {"block", "keys", "why", "rank", "estimate", "true mass"};
  if (s.layer_before >= 0) header.push_back(fmt::format("in layer {}", s.layer_before));
  Table table(header);
  table.align_left(2);
  for (const BlockStudy& b : blocks) {
    const int64_t first = static_cast<int64_t>(b.block) * o.k_block;
    std::vector<std::string> cells = {
        std::to_string(b.block),
        fmt::format("{}-{}", first, std::min(first + o.k_block, s.visible_keys) - 1),
        name_of(b.why),
        b.rank > 0 ? std::to_string(b.rank) : "-",
        fmt::format("{:.4g}", b.estimate),
        fmt::format("{:.4f}", b.mass)};
    if (s.layer_before >= 0) cells.push_back(b.before ? "yes" : "no");
    table.add(std::move(cells));
  }
  return table.text(style);
}

std::string text_of(const ExplainArgs& args, const RowStudy& s, const Options& o, const Style& style) {
  std::vector<BlockStudy> picked, missed;
  for (const BlockStudy& b : s.blocks) (b.why == Why::kNotPicked ? missed : picked).push_back(b);
  std::stable_sort(missed.begin(), missed.end(),
                   [](const BlockStudy& a, const BlockStudy& b) { return a.mass > b.mass; });
  if (missed.size() > kMissedShown) missed.resize(kMissedShown);
  std::string text = fmt::format(
      "layer {}, head {}, row {} of {}: queries {} to {}, {} visible blocks\npreset {}: {}\n"
      "picked {} blocks ({}) with {} of the attention mass\n\n{}",
      args.row.layer, args.row.head, s.row, s.n_rows, s.position, s.position + s.q_count - 1, s.blocks.size(),
      o.preset, how(s, o), picked.size(),
      percent(static_cast<double>(picked.size()) / static_cast<double>(s.blocks.size())),
      percent(mass_of(s, true)), block_table(s, picked, o, style));
  if (!missed.empty())
    text += fmt::format("\nmissed {} of the mass, most of it in\n\n{}", percent(mass_of(s, false)),
                        block_table(s, missed, o, style));
  return text;
}

Result<Answer> explain(const ExplainArgs& args, const Options& options, Shell& shell) {
  const Result<Trace> trace = Trace::open(args.path);
  if (!trace.ok()) return trace.status();
  Result<Engine> engine = make_engine(args.engine);
  if (!engine.ok()) return engine.status();
  const Result<RowStudy> study = study_row(engine.value(), trace.value(), options, args.row);
  if (!study.ok()) return study.status();
  const RowStudy& s = study.value();
  Answer a;
  a.isa = name_of(engine->isa());
  a.threads = engine->threads();
  const nlohmann::json params = {{"preset", options.preset},
                                 {"layer", args.row.layer},
                                 {"head", args.row.head},
                                 {"row", s.row},
                                 {"cause", name_of(s.cause)}};
  const auto picked = std::count_if(s.blocks.begin(), s.blocks.end(),
                                    [](const BlockStudy& b) { return b.why != Why::kNotPicked; });
  a.records.push_back({"mass", mass_of(s, true), "", params});
  a.records.push_back(
      {"density", static_cast<double>(picked) / static_cast<double>(s.blocks.size()), "", params});
  for (const BlockStudy& b : s.blocks) {
    a.records.push_back({"block_mass", b.mass, "", params});
    a.records.back().params.update({{"block", b.block},
                                    {"why", name_of(b.why)},
                                    {"rank", b.rank},
                                    {"estimate", b.estimate},
                                    {"in_route_before", b.before}});
  }
  a.text = text_of(args, s, options, shell.style);
  return a;
}

}  // namespace

void add_explain(CLI::App& app, Job& job) {
  auto args = std::make_shared<ExplainArgs>();
  CLI::App* command = app.add_subcommand("explain", "Why a row of a traced layer picked its blocks");
  command->add_option("TRACE", args->path, "A trace (docs/trace.md)")->required();
  command->add_option("--layer", args->row.layer, "As the model counts")->required();
  command->add_option("--head", args->row.head, "Query head")->capture_default_str();
  command->add_option("--row", args->row.row, "Of q_block queries each; the last when not given");
  command->add_option("--preset", args->preset, kPresetHelp)
      ->check(legal(Options::from_preset))
      ->capture_default_str();
  command->add_option("--set", args->sets, "KEY=VALUE on top of the preset, as selection.floor=0.1")
      ->take_all();
  add_engine_flags(*command, args->engine);
  command->callback([args, &job] {
    job = [args, options = or_usage(options_of(args->preset, args->sets))](Shell& shell) {
      return explain(*args, options, shell);
    };
  });
}

}  // namespace routerelay::cli
