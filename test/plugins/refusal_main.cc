// SPDX-License-Identifier: Apache-2.0
// Loads the plug-in into the fake host and prints what came of it: a process per set of variables, since the
// plug-in reads them once.
#include <cstdio>

#include "fake_ggml.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const routerelay::ggml::FakeLoad load = routerelay::ggml::fake_load(argv[1]);
  std::printf("score %d, %s\n", load.score, load.registry != nullptr ? "registered" : "not registered");
  return 0;
}
