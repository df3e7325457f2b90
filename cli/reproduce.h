// SPDX-License-Identifier: Apache-2.0
// The published tables beside ours, by name. These compute and lay out; the command prints and sets the exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/workload/workload.h"
#include "routerelay/status.hpp"

namespace routerelay {

struct ReproduceArgs {
  bool quick = false;  // fewer repetitions, for tests: the same tables and tolerances
  int threads = 0;     // 0: all cores. Results do not depend on it
  std::function<void(const std::string& what, double done)>
      progress;                 // done: 0 .. 1 of everything; may be empty
  std::function<bool()> abort;  // true stops with kAborted; may be empty
};

struct Reproduction {
  std::vector<Record> records;
  std::string text;                 // the same as tables for people, ends with a newline
  std::vector<std::string> missed;  // one sentence per tolerance missed; exit code 1 unless empty
};

// RouteRelay (arXiv 2609.07306): its three experiments, and our relay modes on the same data and on drift fitted to
// real models. Records `rerouted`, `recall`, `pairs` in % with params experiment, drift or key_blocks, mode and, where
// the paper has one, published and tolerance. docs/reproduce.md explains every column.
Result<Reproduction> reproduce_routerelay(const ReproduceArgs& args);

}  // namespace routerelay
