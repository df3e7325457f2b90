// SPDX-License-Identifier: Apache-2.0
// What a stage runs on, in a test: a pool and a workspace of its own.
#pragma once

#include "core/exec.h"

namespace routerelay::support {

struct TestExec {
  explicit TestExec(int threads = 2, Isa isa = available_isas().back())
      : pool(threads), exec{pool, isa, workspace, {}} {}
  ThreadPool pool;
  Workspace workspace;
  Exec exec;
};

}  // namespace routerelay::support
