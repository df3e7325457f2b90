// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "mode.h"
#include "routerelay/plugin.h"
#include "tally.h"

namespace routerelay::ggml {
namespace {

// As snprintf: cut to `size`, always with an ending zero where there is room for one.
void put(std::string_view text, char* out, size_t size) {
  if (out == nullptr || size == 0) return;
  const size_t n = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), n);
  out[n] = 0;
}

size_t report(char* text, size_t size) noexcept {
  try {
    const std::string json = tally().json();
    put(json, text, size);
    return json.size();
  } catch (...) {
    put("", text, size);
    return 0;
  }
}

int use(const char* preset, const char* options, char* error, size_t error_size) noexcept {
  try {
    const Status set = mode().set(preset == nullptr ? "" : preset, options == nullptr ? "" : options);
    put(set.message(), error, error_size);
    return set.ok() ? 0 : 1;
  } catch (const std::exception& e) {
    put(e.what(), error, error_size);
  } catch (...) {
    put("an unknown exception", error, error_size);
  }
  return 1;
}

}  // namespace

void* control_function(std::string_view name) {
  if (name == RR_PLUGIN_REPORT) return reinterpret_cast<void*>(static_cast<rr_plugin_report_fn>(report));
  if (name == RR_PLUGIN_USE) return reinterpret_cast<void*>(static_cast<rr_plugin_use_fn>(use));
  return nullptr;
}

}  // namespace routerelay::ggml
