// SPDX-License-Identifier: Apache-2.0
#include "cli/machine.h"

#include <unistd.h>

#include <fstream>

#include "routerelay/engine.hpp"

namespace routerelay::cli {

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown";
}

double memory_bytes() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
}

nlohmann::json machine(const std::string& isa, int threads) {
  nlohmann::json isas = nlohmann::json::array();
  for (Isa i : available_isas()) isas.push_back(name_of(i));
  nlohmann::json out = {{"cpu", cpu_name()}, {"isas", isas}, {"isa", isa}, {"threads", threads}};
  if (!isa.empty() && threads > 0) return out;
  const Result<Engine> engine = Engine::create();
  if (isa.empty())
    out["isa"] = engine.ok() ? nlohmann::json(name_of(engine->isa())) : nlohmann::json(nullptr);
  if (threads == 0) out["threads"] = engine.ok() ? engine->threads() : 0;
  return out;
}

}  // namespace routerelay::cli
