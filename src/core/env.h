// SPDX-License-Identifier: Apache-2.0
// Every environment variable of the product, named and read in this one place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "routerelay/status.hpp"

namespace routerelay {

// An unset or empty variable leaves its default; a value that is not legal is an error, never a default.
struct Env {
  std::string backend;  // ROUTERELAY_BACKEND: cpu, reference; empty: the engine chooses
  std::string isa;      // ROUTERELAY_ISA: scalar, avx2, avx512, avx512bf16, amx; empty: the best
  // ROUTERELAY_PRESET: exact, careful, balanced, fast, off (plug-ins only). Empty: exact in plug-ins, balanced in the
  // command line, whose point is to show what is skipped.
  std::string preset;
  std::string options;    // ROUTERELAY_OPTIONS: "relay.wide=4;selection.p=0.95" over the preset (plug-ins)
  int64_t min_rows = 64;  // ROUTERELAY_MIN_ROWS: fewer query rows stay with the host
  std::optional<int64_t> min_kv;  // ROUTERELAY_MIN_KV: fewer keys stay with the host; unset: 512
  int threads = 0;                // ROUTERELAY_THREADS: overrides the host's count; 0: does not
  std::string report;             // ROUTERELAY_REPORT: empty (or 0): none; "1": stderr; otherwise a file
  std::string trace;              // ROUTERELAY_TRACE: file that gets q, k, v; empty: none
  std::vector<int> trace_layers;  // ROUTERELAY_TRACE_LAYERS: "0,7,12"; empty: every layer
  bool allow_untested = false;    // ROUTERELAY_ALLOW_UNTESTED: 0, 1: accept unknown host versions
  Status unknown;  // not ok: a variable begins with ROUTERELAY_ and is none of ours, misspelt most likely
};

// `environment`: NAME=VALUE each, null at the end. kInvalidArgument names variable, value and legal ones. Unknown
// variables are `unknown`: an error of whoever owns the process, a warning of a guest, which must not stop its host.
Result<Env> read_env(const char* const* environment);

// The process environment as it was at the first call.
const Result<Env>& env();

}  // namespace routerelay
