// SPDX-License-Identifier: Apache-2.0
#include "core/env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <span>
#include <string_view>

#include "core/assert.h"

namespace routerelay {
namespace {

constexpr std::string_view kPrefix = "ROUTERELAY_";
// The last three are read elsewhere: by the Python package, and, the last two, by the scripts of ./dev.
constexpr std::array<std::string_view, 14> kNames = {
    "ROUTERELAY_BACKEND",  "ROUTERELAY_ISA",          "ROUTERELAY_PRESET",         "ROUTERELAY_OPTIONS",
    "ROUTERELAY_MIN_ROWS", "ROUTERELAY_MIN_KV",       "ROUTERELAY_THREADS",        "ROUTERELAY_REPORT",
    "ROUTERELAY_TRACE",    "ROUTERELAY_TRACE_LAYERS", "ROUTERELAY_ALLOW_UNTESTED", "ROUTERELAY_PLUGIN",
    "ROUTERELAY_CACHE",    "ROUTERELAY_TEST_HOSTS"};

constexpr size_t kDevelopers = 2;  // of them, which no user needs to know

constexpr std::array<std::string_view, 2> kBackends = {"cpu", "reference"};
constexpr std::array<std::string_view, 5> kIsas = {"scalar", "avx2", "avx512", "avx512bf16", "amx"};
constexpr std::array<std::string_view, 4> kPresets = {"exact", "careful", "balanced", "fast"};
constexpr std::array<std::string_view, 2> kSwitch = {"0", "1"};
constexpr int64_t kMaxCount = int64_t{1} << 32;  // tokens, as in check_layer
constexpr int64_t kMaxThreads = 4096;
constexpr int64_t kMaxLayer = 1 << 16;

Status illegal(const char* name, std::string_view value, std::string_view legal) {
  return {Code::kInvalidArgument, fmt::format("environment: {} is '{}'; legal: {}", name, value, legal)};
}

Result<int64_t> integer(const char* name, std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < low || value > high)
    return illegal(name, text, fmt::format("an integer from {} to {}", low, high));
  return value;
}

bool is_ours(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Hands each set variable to a rule and keeps the first error.
class Reader {
 public:
  explicit Reader(const char* const* environment) : environment_(environment) {}

  std::string text(std::string_view name) const {
    RR_ASSERT(is_ours(name));
    for (const char* const* at = environment_; *at != nullptr; ++at)
      if (const std::string_view line(*at);
          line.starts_with(name) && line.substr(name.size()).starts_with('='))
        return std::string(line.substr(name.size() + 1));
    return "";
  }
  Status unknown() const {
    for (const char* const* at = environment_; *at != nullptr; ++at) {
      const std::string_view line(*at), name = line.substr(0, line.find('='));
      if (name.starts_with(kPrefix) && !is_ours(name))
        return {Code::kInvalidArgument,
                fmt::format("environment: {} is no variable; legal: {}", name,
                            fmt::join(std::span(kNames).first(kNames.size() - kDevelopers), ", "))};
    }
    return {};
  }
  // `in_plugins`: one more word, which means something to a plug-in only.
  void word(const char* name, std::span<const std::string_view> legal, std::string& out,
            std::string_view in_plugins = "") {
    const std::string value = text(name);
    if (value.empty()) return;
    if (std::find(legal.begin(), legal.end(), value) == legal.end() && value != in_plugins)
      return fail(illegal(name, value,
                          fmt::format("{}{}{}", fmt::join(legal, ", "),
                                      in_plugins.empty() ? "" : "; in a plug-in also ", in_plugins)));
    out = value;
  }
  void count(const char* name, int64_t low, int64_t high, const std::function<void(int64_t)>& set) {
    const std::string value = text(name);
    if (value.empty()) return;
    const Result<int64_t> parsed = integer(name, value, low, high);
    if (!parsed.ok()) return fail(parsed.status());
    set(parsed.value());
  }
  // Comma-separated integers.
  void list(const char* name, int64_t high, std::vector<int>& out) {
    const std::string value = text(name);
    for (size_t begin = 0; begin < value.size();) {
      const size_t end = std::min(value.find(',', begin), value.size());
      const Result<int64_t> item = integer(name, std::string_view(value).substr(begin, end - begin), 0, high);
      if (!item.ok()) return fail(illegal(name, value, "layer indices with commas between, such as 0,7,12"));
      out.push_back(static_cast<int>(item.value()));
      begin = end + 1;
    }
  }
  const Status& status() const { return status_; }

 private:
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const char* const* environment_;
  Status status_;
};

}  // namespace

Result<Env> read_env(const char* const* environment) {
  Reader r(environment);
  Env e;
  std::string allow = "0";
  r.word("ROUTERELAY_BACKEND", kBackends, e.backend);
  r.word("ROUTERELAY_ISA", kIsas, e.isa);
  r.word("ROUTERELAY_PRESET", kPresets, e.preset, "off");
  r.count("ROUTERELAY_MIN_ROWS", 1, kMaxCount, [&](int64_t n) { e.min_rows = n; });
  r.count("ROUTERELAY_MIN_KV", 0, kMaxCount, [&](int64_t n) { e.min_kv = n; });
  r.count("ROUTERELAY_THREADS", 0, kMaxThreads, [&](int64_t n) { e.threads = static_cast<int>(n); });
  r.list("ROUTERELAY_TRACE_LAYERS", kMaxLayer, e.trace_layers);
  r.word("ROUTERELAY_ALLOW_UNTESTED", kSwitch, allow);
  if (!r.status().ok()) return r.status();
  e.options = r.text("ROUTERELAY_OPTIONS");
  e.report = r.text("ROUTERELAY_REPORT");
  if (e.report == "0") e.report.clear();
  e.trace = r.text("ROUTERELAY_TRACE");
  e.allow_untested = allow == "1";
  e.unknown = r.unknown();
  return e;
}

const Result<Env>& env() {
  static const Result<Env> once = read_env(environ);
  return once;
}

}  // namespace routerelay
