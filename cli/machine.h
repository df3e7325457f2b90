// SPDX-License-Identifier: Apache-2.0
// The machine that numbers were measured on, as every --json names it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace routerelay::cli {

std::string cpu_name();  // as the kernel names it; "unknown" where it does not
double memory_bytes();   // physical
// {"cpu", "isas", "isa", "threads"}. Empty isa and 0 threads: what an engine without options has; "isa" is null
// when the environment asks for one that cannot be had.
nlohmann::json machine(const std::string& isa, int threads);

}  // namespace routerelay::cli
