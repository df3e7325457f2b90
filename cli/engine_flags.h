// SPDX-License-Identifier: Apache-2.0
// The options of every command that computes: --isa, --backend, --threads, --preset, --set.
#pragma once

#include "cli/command.h"
#include "routerelay/engine.hpp"

namespace routerelay::cli {

void add_engine_flags(CLI::App& command, EngineOptions& options);

// ROUTERELAY_PRESET, so that a shell set up for the plug-in tries what the plug-in would do; else balanced.
std::string default_preset();
inline constexpr const char* kPresetHelp =
    "exact, careful, balanced or fast; ROUTERELAY_PRESET, else balanced, when not given";

// "key=value" as --set gives it.
Status set_option(Options& options, const std::string& pair);

// A preset, by a name that was checked, with such pairs on top.
Result<Options> options_of(const std::string& preset, const std::vector<std::string>& sets);

// An engine that Ctrl-C stops between work items.
Result<Engine> make_engine(const EngineOptions& options);

}  // namespace routerelay::cli
