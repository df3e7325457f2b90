// SPDX-License-Identifier: Apache-2.0
// routerelay compare: many routers and selections on one trace, in one table, against one dense run.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/scores.h"
#include "cli/trace_job.h"

namespace routerelay::cli {
namespace {

struct CompareArgs {
  // Many contestants: one timed repetition unless asked for more.
  TraceArgs trace{.repeat = 1};
  std::vector<std::string> routers = {"centroid", "sub", "sampled", "antidiag", "box", "ball"};
  std::vector<std::string> selections = {"top_k", "threshold", "top_p"};
  std::vector<std::string> relays = {"off"};
  std::vector<std::string> sets;  // key=value, for all
  double floor = 0.1;             // top_k: share of the blocks
};

// The contestants that the options allow, and a sentence for every one that they do not.
struct Field {
  std::vector<Options> contestants;
  std::vector<std::string> refused;
};

Result<Options> contestant(const CompareArgs& args, const std::string& router, const std::string& selection,
                           const std::string& relay) {
  Options o = Options::from_preset("balanced").value();
  RR_TRY(o.set("router", router));
  RR_TRY(o.set("selection", selection));
  RR_TRY(o.set("relay", relay));
  if (o.selection.kind == Selection::kTopK) {
    o.selection.floor = args.floor;
    o.selection.least = 0;  // the share is what was asked for
  }
  for (const std::string& pair : args.sets) RR_TRY(set_option(o, pair));
  RR_TRY(o.check());
  return o;
}

Result<Field> field_of(const CompareArgs& args) {
  Field field;
  for (const std::string& router : args.routers)
    for (const std::string& selection : args.selections)
      for (const std::string& relay : args.relays) {
        Result<Options> o = contestant(args, router, selection, relay);
        if (o.ok())
          field.contestants.push_back(std::move(o).value());
        else
          field.refused.push_back(
              fmt::format("{}, {}, {}: {}", router, selection, relay, o.status().message()));
      }
  if (field.contestants.empty()) return Status(Code::kInvalidArgument, field.refused.front());
  return field;
}

std::string title_of(const SelectionOptions& s) {
  const std::string least = s.least > 0 ? fmt::format(", least {}", s.least) : "";
  switch (s.kind) {
    case Selection::kTopK:
      return s.k > 0 ? fmt::format("top_k {}", s.k) : fmt::format("top_k {:g} %{}", s.floor * 100, least);
    case Selection::kThreshold:
      return fmt::format("threshold {:g}", s.threshold);
    case Selection::kTopP:
      return fmt::format("top_p {:g}, floor {:g} %{}", s.p, s.floor * 100, least);
  }
  return "";
}

std::string title_of(const RouterOptions& r) {
  switch (r.kind) {
    case Router::kSub:
      return fmt::format("sub {}x{}", r.sub_q, r.sub_k);
    case Router::kSampled:
      return fmt::format("sampled {}", r.samples);
    case Router::kAntidiag:
      return fmt::format("antidiag {}", r.stride);
    default:
      return name_of(r.kind);
  }
}

Answer answer_of(const CompareArgs& args, const Field& field, const ReplayedTrace& done, const Style& style) {
  const auto& [trace, layers, engine, result] = done;
  Answer a;
  a.isa = name_of(engine.isa());
  a.threads = engine.threads();
  Table table({"router", "selection", "relay", "density", "mass", "ids", "scored", "err rms", "err max",
               "routing ms", "layer ms", "speedup"});
  table.align_left(1);
  table.align_left(2);
  Score s;
  for (size_t i = 0; i < field.contestants.size(); ++i) {
    const Options& o = field.contestants[i];
    s = score(result, i, Scope::kRouted);
    nlohmann::json params = trace_params(trace);
    params.update({{"router", name_of(o.router.kind)},
                   {"selection", name_of(o.selection.kind)},
                   {"relay", name_of(o.relay.mode)},
                   {"floor", o.selection.floor},
                   {"p", o.selection.p},
                   {"scope", "routed"}});
    add_score(s, params, a.records);
    table.add({title_of(o.router), title_of(o.selection), name_of(o.relay.mode), percent(s.density),
               percent(s.mass), percent(s.id_recall), percent(s.scored_share), scientific(s.error_rms),
               scientific(s.error_max), decimals((s.summarize_us + s.relay_us + s.route_us) / 1e3, 2),
               decimals(s.layer_us / 1e3, 2), times(s.speedup())});
  }
  a.text = fmt::format("{}\nrouted layers: {}, on {} ({}, {} threads); dense takes {} ms\n\n{}\n{}",
                       describe(args.trace.path, trace), s.layers, engine.backend(), a.isa, a.threads,
                       decimals(s.dense_us / 1e3, 2), table.text(style), kLegend);
  if (!field.refused.empty()) a.text += fmt::format("\nleft out:\n  {}\n", fmt::join(field.refused, "\n  "));
  return a;
}

Result<Answer> compare(const CompareArgs& args, const Field& field, Shell& shell) {
  const Result<ReplayedTrace> done = replay_trace(args.trace, field.contestants, shell);
  if (!done.ok()) return done.status();
  if (score(done->replay, 0, Scope::kRouted).layers == 0)
    return Status(
        Code::kInvalidArgument,
        "compare: no layer was routed: layers 0 and 1 and rows with fewer than 2048 keys are dense; choose "
        "other layers, or --set dense_layers=0 --set dense_below=0");
  return answer_of(args, field, done.value(), shell.style);
}

}  // namespace

void add_compare(CLI::App& app, Job& job) {
  auto args = std::make_shared<CompareArgs>();
  CLI::App* command = app.add_subcommand("compare", "Many routers and selections on a trace, in one table");
  add_trace_flags(*command, args->trace);
  command->add_option("--routers", args->routers, "Some of centroid, sub, sampled, antidiag, box, ball")
      ->delimiter(',')
      ->check(legal(router_from));
  command->add_option("--selections", args->selections, "Some of top_k, threshold, top_p")
      ->delimiter(',')
      ->check(legal(selection_from));
  command->add_option("--relays", args->relays, "Some of off, fixed, strict, mass, repair, certify, screen")
      ->delimiter(',')
      ->check(legal(relay_from))
      ->capture_default_str();
  command->add_option("--floor", args->floor, "top_k: share of the visible blocks")
      ->check(CLI::Range(0., 1.))
      ->capture_default_str();
  command->add_option("--set", args->sets, "KEY=VALUE for all of them, as selection.p=0.95")->take_all();
  command->callback([args, &job] {
    job = [args, field = or_usage(field_of(*args))](Shell& shell) { return compare(*args, field, shell); };
  });
}

}  // namespace routerelay::cli
