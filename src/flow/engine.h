// SPDX-License-Identifier: Apache-2.0
// What an Engine owns; a Pass borrows it.
#pragma once

#include "core/exec.h"
#include "core/stages.h"
#include "routerelay/engine.hpp"

namespace routerelay {

struct Engine::Impl {
  Impl(const Stages& chosen, Isa chosen_isa, int threads) : stages(chosen), isa(chosen_isa), pool(threads) {}

  const Stages& stages;
  Isa isa;
  ThreadPool pool;
  Workspace workspace;
  std::function<bool()> abort;

  Exec exec() { return {.pool = pool, .isa = isa, .workspace = workspace, .abort = abort}; }
};

// For a plug-in that has work of its own for an engine's threads.
struct EngineAccess {
  static Exec exec(Engine& engine) { return engine.impl_->exec(); }
};

}  // namespace routerelay
