// SPDX-License-Identifier: Apache-2.0
// The two symbols that ggml asks a backend for. Loading never fails loudly: one line says why the plug-in stays out.
#include "plugin.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <mutex>

#include "core/cpu_features.h"
#include "device.h"
#include "handshake.h"
#include "host_team.h"
#include "mode.h"
#include "say.h"
#include "tally.h"
#include "writable.h"

#define RR_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))

namespace routerelay::ggml {
namespace {

// What ROUTERELAY_MIN_KV is when nobody says. Every claimed call cuts the host's graph in two more parts, while
// attention over fewer keys is a hundredth of such a prompt's time: too little to win, enough to lose
// (docs/decision/2026-11-29-short-prompts.md).
constexpr int64_t kMinKeys = 512;

#ifdef NDEBUG
constexpr const char* kBuild = "";
#else
constexpr const char* kBuild = "; built for debugging, and slower";
#endif

// One line of what was loaded, and one for each variable that is wrong and must not stop the host.
void announce(Plugin& plugin, const Engine& engine) {
  Env& set = plugin.env;
  say(fmt::format(
      "{} in ggml {} (API {}), {} on {}; claims prompt attention of {} rows and {} keys and more{}",
      mode().now()->preset, plugin.host.version, plugin.host.api, engine.backend(), name_of(engine.isa()),
      plugin.claims.min_rows, plugin.claims.min_keys, kBuild));
  if (!set.unknown.ok()) say(set.unknown.message());
  const auto place = [](const char* variable, std::string& path, const char* else_legal) {
    std::string whole = writable(path);
    if (whole.empty())
      say(fmt::format("{} is '{}', which cannot be written; legal: a file in a folder that takes new ones{}",
                      variable, path, else_legal));
    path.swap(whole);
  };
  if (!set.trace.empty()) place("ROUTERELAY_TRACE", set.trace, "");
  if (!set.report.empty() && set.report != "1") place("ROUTERELAY_REPORT", set.report, ", or 1");
  if (!set.trace.empty() && set.trace == set.report) {
    say(fmt::format("ROUTERELAY_TRACE is '{}', which ROUTERELAY_REPORT is too; legal: another file",
                    set.trace));
    set.trace.clear();
  }
}

// As it is at each attempt: a host that was refused may mend a variable and load again, and this file stays in the
// process (-z nodelete).
Result<Env> env_now() {
  return read_env(environ);
}

// Also proves that this machine has what ROUTERELAY_ISA and ROUTERELAY_BACKEND ask for. Starts no thread.
Result<std::unique_ptr<Plugin>> prepare(const void* caller) {
  Result<Env> set_now = env_now();
  if (!set_now.ok()) return set_now.status();
  auto plugin = std::make_unique<Plugin>();
  plugin->env = std::move(set_now).value();
  if (plugin->env.preset.empty()) plugin->env.preset = "exact";
  RR_TRY(mode().set(plugin->env.preset, plugin->env.options));
  const Env& set = plugin->env;
  const Result<Engine> engine =
      Engine::create({.backend = set.backend, .isa = set.isa, .threads = 1, .environment = false});
  if (!engine.ok()) return engine.status();
  Result<Host> host = find_host(caller, plugin->env.allow_untested);
  if (!host.ok()) return host.status();
  plugin->host = std::move(host).value();
  RR_TRY(shake_hands(plugin->host, reinterpret_cast<const void*>(&prepare)));
  plugin->team = host_team(plugin->host.cpu_code);
  plugin->claims.min_rows = plugin->env.min_rows;
  plugin->claims.min_keys = plugin->env.min_kv.value_or(kMinKeys);

  announce(*plugin, engine.value());
  const Engine& e = engine.value();
  tally().begin({e.backend(), name_of(e.isa()), plugin->host.version, plugin->host.api}, set.report);
  return plugin;
}

// Hosts may load twice: the same host gets the same entry, another copy of ggml in the process gets none.
Registry* load(const void* caller) {
  static std::mutex mutex;
  static const Plugin* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) {
    const Result<Host> host = find_host(caller, loaded->env.allow_untested);
    if (host.ok() && host.value().call.version == loaded->host.call.version) return registry_entry(*loaded);
    say("not used: already serving another copy of ggml in this process");
    return nullptr;
  }
  Result<std::unique_ptr<Plugin>> prepared = prepare(caller);
  if (!prepared.ok()) {
    say("not used: " + prepared.status().message());
    return nullptr;
  }
  loaded = prepared.value().release();
  return registry_entry(*loaded);
}

// 0: the host skips us with a line of its own. Illegal variables pass here, so that init can say what is wrong.
int score() {
  const Result<Env> set = env_now();
  if (!set.ok()) return 1;
  if (set.value().preset == "off") return 0;
  const bool has_kernels = best_isa() != Isa::kScalar || set.value().backend == "reference";
  return has_kernels ? 1 : 0;
}

}  // namespace
}  // namespace routerelay::ggml

RR_PLUGIN_EXPORT void* ggml_backend_init() {
  const void* caller = __builtin_return_address(0);
  try {
    return routerelay::ggml::load(caller);
  } catch (const std::exception& e) {
    routerelay::ggml::say("not used: ", e.what());
  } catch (...) {
    routerelay::ggml::say("not used: an unknown exception");
  }
  return nullptr;
}

RR_PLUGIN_EXPORT int ggml_backend_score() {
  try {
    return routerelay::ggml::score();
  } catch (...) {
    return 0;
  }
}
