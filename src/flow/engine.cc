// SPDX-License-Identifier: Apache-2.0
#include "flow/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "core/cpu_features.h"
#include "core/env.h"
#include "cpu/cpu.h"
#include "reference/reference.h"

namespace routerelay {
namespace {

constexpr int kMaxThreads = 4096;

Result<const Stages*> stages_from(std::string_view name) {
  for (const Stages* s : {&cpu::stages(), &reference::stages()})
    if (name == s->name) return s;
  return Status(Code::kInvalidArgument, fmt::format("engine: backend is '{}'; legal: cpu, reference", name));
}

Result<Isa> usable_isa(std::string_view name) {
  if (name.empty()) return best_isa();
  Result<Isa> isa = isa_from(name);
  if (!isa.ok() || isa_available(isa.value())) return isa;
  std::string available;
  for (Isa i : available_isas()) available += fmt::format("{}{}", available.empty() ? "" : ", ", name_of(i));
  return Status(Code::kUnsupported,
                fmt::format("engine: isa is '{}'; this machine runs {}", name, available));
}

}  // namespace

Result<Engine> Engine::create(const EngineOptions& options) {
  Env set;
  if (options.environment) {
    if (!env().ok()) return env().status();
    set = env().value();
    RR_TRY(set.unknown);
  }
  const std::string backend = !options.backend.empty() ? options.backend
                              : set.backend.empty()    ? "cpu"
                                                       : set.backend;
  const Result<const Stages*> stages = stages_from(backend);
  if (!stages.ok()) return stages.status();
  const Result<Isa> isa = usable_isa(!options.isa.empty() ? options.isa : set.isa);
  if (!isa.ok()) return isa.status();
  const int wanted = options.threads != 0 ? options.threads : set.threads;
  if (wanted < 0 || wanted > kMaxThreads)
    return Status(
        Code::kInvalidArgument,
        fmt::format("engine: threads is {}; legal: 1 to {}, or 0 for all cores", wanted, kMaxThreads));
  const int threads =
      wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  auto impl = std::make_unique<Impl>(*stages.value(), isa.value(), threads);
  impl->pool.set_team(options.team);
  return Engine(std::move(impl));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

const char* Engine::backend() const {
  return impl_->stages.name;
}
Isa Engine::isa() const {
  return impl_->isa;
}
int Engine::threads() const {
  return impl_->pool.threads();
}

Status Engine::set_threads(int threads) {
  if (threads < 1 || threads > kMaxThreads)
    return {Code::kInvalidArgument,
            fmt::format("engine: threads is {}; legal: 1 to {}", threads, kMaxThreads)};
  impl_->pool.set_threads(threads);
  return {};
}

void Engine::set_abort(std::function<bool()> abort) {
  impl_->abort = std::move(abort);
}

}  // namespace routerelay
