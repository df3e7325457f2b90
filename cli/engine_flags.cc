// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_flags.h"

#include "cli/interrupt.h"
#include "core/env.h"

namespace routerelay::cli {

void add_engine_flags(CLI::App& command, EngineOptions& options) {
  command
      .add_option("--isa", options.isa, "scalar, avx2, avx512, avx512bf16 or amx; the best when not given")
      ->check(legal(isa_from));
  command.add_option("--backend", options.backend, "cpu (when not given) or reference")
      ->check(CLI::IsMember({"cpu", "reference"}));
  command.add_option("--threads", options.threads, "All cores when not given")->check(CLI::Range(1, 4096));
}

std::string default_preset() {
  return env().ok() && !env().value().preset.empty() ? env().value().preset : "balanced";
}

Status set_option(Options& options, const std::string& pair) {
  const size_t equals = pair.find('=');
  if (equals == std::string::npos)
    return {Code::kInvalidArgument,
            "--set: '" + pair + "' has no '='; expected KEY=VALUE, as selection.p=0.95"};
  return options.set(pair.substr(0, equals), pair.substr(equals + 1));
}

Result<Options> options_of(const std::string& preset, const std::vector<std::string>& sets) {
  Result<Options> options = Options::from_preset(preset);
  // --preset was checked when it was parsed; the variable may hold what only a plug-in has.
  if (!options.ok())
    return Status(options.status().code(),
                  "environment: ROUTERELAY_PRESET, which --preset overrides: " + options.status().message());
  for (const std::string& pair : sets) RR_TRY(set_option(options.value(), pair));
  RR_TRY(options->check());
  return options;
}

Result<Engine> make_engine(const EngineOptions& options) {
  Result<Engine> engine = Engine::create(options);
  if (engine.ok()) engine->set_abort(watch_interrupts());
  return engine;
}

}  // namespace routerelay::cli
