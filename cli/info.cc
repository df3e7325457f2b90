// SPDX-License-Identifier: Apache-2.0
// routerelay info: what this build is, what this machine runs, what was chosen and why, and the presets.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/machine.h"
#include "core/cpu_features.h"
#include "core/env.h"
#include "routerelay/engine.hpp"
#include "routerelay/options.hpp"

namespace routerelay::cli {
namespace {

constexpr std::array kAllIsas = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmxBf16};
constexpr std::array kPresets = {"exact", "careful", "balanced", "fast"};

std::string floor_of(const Options& o) {
  return fmt::format("floor {:g} %, least {}, p {:g}, cap {:g} %", o.selection.floor * 100, o.selection.least,
                     o.selection.p, o.selection.cap * 100);
}

Record preset_record(const Options& o) {
  Record r{"preset", 1, "", {{"preset", o.preset}, {"dense", o.dense}}};
  if (o.dense) return r;
  r.params.update({{"router", name_of(o.router.kind)},
                   {"samples", o.router.samples},
                   {"selection", name_of(o.selection.kind)},
                   {"floor", o.selection.floor},
                   {"least", o.selection.least},
                   {"p", o.selection.p},
                   {"cap", o.selection.cap},
                   {"relay", name_of(o.relay.mode)},
                   {"dense_layers", o.dense_layers},
                   {"dense_below", o.dense_below}});
  return r;
}

std::vector<std::string> preset_cells(const Options& o) {
  if (o.dense) return {o.preset, "-", "every block", "-", "-", "-"};
  const std::string relay = o.relay.mode == Relay::kScreen
                                ? fmt::format("screen, wide {:g}, near {:g}", o.relay.wide, o.relay.near)
                                : name_of(o.relay.mode);
  return {o.preset,
          fmt::format("{} {}", name_of(o.router.kind), o.router.samples),
          fmt::format("{}: {}", name_of(o.selection.kind), floor_of(o)),
          relay,
          fmt::format("0-{}", o.dense_layers - 1),
          fmt::format("{} keys", o.dense_below)};
}

std::string why(const std::string& variable, const std::string& value, const char* otherwise) {
  return value.empty() ? otherwise : fmt::format("{}={}", variable, value);
}

Result<Answer> info(Shell& shell) {
  const Result<Engine> engine = Engine::create();
  if (!engine.ok()) return engine.status();
  const Env& set = env().value();  // Engine::create has read it
  Answer a;
  a.isa = name_of(engine->isa());
  a.threads = engine->threads();
  std::string isas;
  for (Isa isa : kAllIsas) {
    const bool available = isa_available(isa);
    a.records.push_back({"isa_available", available ? 1.0 : 0.0, "", {{"isa", name_of(isa)}}});
    if (available) isas += fmt::format("{}{}", isas.empty() ? "" : ", ", name_of(isa));
  }
  for (const char* backend : {"cpu", "reference"})
    a.records.push_back(
        {"backend", std::string_view(backend) == engine->backend() ? 1.0 : 0.0, "", {{"backend", backend}}});
  a.records.push_back({"threads", static_cast<double>(a.threads), "threads"});
  a.records.push_back({"memory", memory_bytes(), "bytes"});

  a.text = fmt::format(
      "RouteRelay {}\n"
      "cpu        {}\n"
      "back ends  cpu, reference; uses {} ({})\n"
      "isas       {}; uses {} ({})\n"
      "threads    {} ({})\n"
      "memory     {}\n\n",
      RR_VERSION, cpu_name(), engine->backend(), why("ROUTERELAY_BACKEND", set.backend, "the default"), isas,
      a.isa, why("ROUTERELAY_ISA", set.isa, why_best_isa()), a.threads,
      set.threads > 0 ? fmt::format("ROUTERELAY_THREADS={}", set.threads) : "all cores",
      bytes_text(memory_bytes()));
  Table table({"preset", "router", "selection", "relay", "dense layers", "dense below"});
  for (size_t column : {1, 2, 3, 4, 5}) table.align_left(column);
  for (const char* name : kPresets) {
    const Options options = Options::from_preset(name).value();
    table.add(preset_cells(options));
    a.records.push_back(preset_record(options));
  }
  a.text += table.text(shell.style);
  return a;
}

}  // namespace

void add_info(CLI::App& app, Job& job) {
  CLI::App* command = app.add_subcommand("info", "Build, machine, what was chosen and why, presets");
  command->callback([&job] { job = info; });
}

}  // namespace routerelay::cli
