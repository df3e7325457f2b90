// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <array>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

namespace routerelay::ggml {
namespace {

// 0.9.11 has the old layout, these have the new one. docs/plugin.md says which of them the tests run in; those between
// are told apart, and proved, like them.
constexpr std::string_view kOldVersion = "0.9.11";
constexpr int kFirstMinor = 17, kLastMinor = 27;
// op_name reads its table without a bound: the walk stops at the last name wanted, which is operation 74 or
// lower in all known versions, and never goes past the 90 operations that all of them have.
constexpr int32_t kOpsWalked = 90;

Status refuse(std::string why) {
  return {Code::kUnsupported, std::move(why)};
}

// Looks the functions up in one module and the modules it depends on; remembers the first that is missing.
class Resolver {
 public:
  explicit Resolver(void* module) : module_(module) {}

  template <class Function>
  void operator()(Function*& out, const char* symbol) {
    out = reinterpret_cast<Function*>(dlsym(module_, symbol));
    if (out == nullptr && missing_ == nullptr) missing_ = symbol;
  }
  bool has(const char* symbol) const { return dlsym(module_, symbol) != nullptr; }
  const char* missing() const { return missing_; }

 private:
  void* module_;
  const char* missing_ = nullptr;
};

#define RR_GGML(name) resolve(f.name, "ggml_" #name)
const char* resolve_all(void* module, HostFunctions& f) {
  Resolver resolve(module);
  RR_GGML(version);
  RR_GGML(op_name);
  RR_GGML(graph_n_nodes);
  RR_GGML(graph_node);
  RR_GGML(backend_cpu_buffer_type);
  RR_GGML(backend_buft_is_host);
  RR_GGML(backend_init_by_type);
  RR_GGML(backend_graph_compute);
  RR_GGML(backend_get_device);
  RR_GGML(backend_free);
  RR_GGML(backend_dev_backend_reg);
  RR_GGML(backend_reg_get_proc_address);
  RR_GGML(init);
  RR_GGML(free);
  RR_GGML(tensor_overhead);
  RR_GGML(new_tensor_4d);
  RR_GGML(permute);
  RR_GGML(flash_attn_ext);
  RR_GGML(set_name);
  RR_GGML(set_input);
  return resolve.missing();
}
#undef RR_GGML

// A handle on a module that is already loaded. The main program has no name to reopen it by.
void* reopen(const char* path) {
  const bool main_program = path == nullptr || *path == '\0';
  return dlopen(main_program ? nullptr : path, RTLD_LAZY | (main_program ? 0 : RTLD_NOLOAD));
}

std::vector<std::string> loaded_modules() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        static_cast<std::vector<std::string>*>(out)->emplace_back(info->dlpi_name ? info->dlpi_name : "");
        return 0;
      },
      &paths);
  return paths;
}

struct Module {
  void* handle = nullptr;  // never closed: the host does not unload either
  HostFunctions functions{};
};

// The caller's own module first: where a process holds two copies of ggml, it is the right one.
Result<Module> find_module(const void* caller) {
  Module m;
  const char* missing = "ggml_version";
  if (Dl_info info{}; dladdr(caller, &info) != 0 && (m.handle = reopen(info.dli_fname)) != nullptr) {
    missing = resolve_all(m.handle, m.functions);
    if (missing == nullptr) return m;
  }
  for (const std::string& path : loaded_modules())
    if ((m.handle = reopen(path.c_str())) != nullptr && resolve_all(m.handle, m.functions) == nullptr)
      return m;
  return refuse(fmt::format("the host does not export {}; a shared build of ggml is needed", missing));
}

Status resolve_ops(const HostFunctions& call, OpNumbers& op) {
  const std::array<std::pair<std::string_view, int32_t*>, 6> wanted = {
      {{"FLASH_ATTN_EXT", &op.flash_attn_ext},
       {"NONE", &op.none},
       {"RESHAPE", &op.reshape},
       {"VIEW", &op.view},
       {"PERMUTE", &op.permute},
       {"TRANSPOSE", &op.transpose}}};
  size_t found = 0;
  for (int32_t i = 0; i < kOpsWalked && found < wanted.size(); ++i) {
    const char* op_name = call.op_name(i);
    for (const auto& [name, number] : wanted) {
      if (op_name == nullptr || name != op_name) continue;
      *number = i;
      ++found;
    }
  }
  for (const auto& [name, number] : wanted)
    if (*number < 0) return refuse(fmt::format("the host has no operation {}", name));
  return {};
}

}  // namespace

Result<Abi> abi_of(bool has_2d_copies, bool has_alloc_n) {
  if (has_2d_copies) return Abi{has_alloc_n ? 3 : 2, kBackendSince010};
  if (!has_alloc_n) return Abi{2, kBackendBefore010};
  return refuse(
      "the host allocates buffers in numbers but copies nothing in 2D: no ggml that this build knows");
}

Status check_version(const std::string& version, bool allow_untested) {
  const std::string_view text = version;
  const bool is_old = text.starts_with(kOldVersion) &&
                      (text.size() == kOldVersion.size() || std::isdigit(text[kOldVersion.size()]) == 0);
  int minor = 0;
  const char* end = text.data() + text.size();
  const bool is_new = text.starts_with("0.") && [&] {
    const auto [stop, error] = std::from_chars(text.data() + 2, end, minor);
    return error == std::errc{} && stop != end && *stop == '.' && minor >= kFirstMinor && minor <= kLastMinor;
  }();
  if (is_old || is_new || allow_untested) return {};
  return refuse(fmt::format(
      "the host's ggml is {}; accepted: {} and 0.{} to 0.{}; ROUTERELAY_ALLOW_UNTESTED=1 tries it", version,
      kOldVersion, kFirstMinor, kLastMinor));
}

Result<Host> find_host(const void* caller, bool allow_untested) {
  Result<Module> module = find_module(caller);
  if (!module.ok()) return module.status();
  Host host;
  host.call = module->functions;
  host.version = host.call.version();
  RR_TRY(check_version(host.version, allow_untested));
  const Resolver symbols(module->handle);
  const Result<Abi> abi = abi_of(symbols.has("ggml_backend_tensor_set_2d_async"),
                                 symbols.has("ggml_backend_buft_alloc_buffer_n"));
  if (!abi.ok()) return abi.status();
  host.api = abi.value().api;
  host.layout = abi.value().layout;
  RR_TRY(resolve_ops(host.call, host.op));
  return host;
}

}  // namespace routerelay::ggml
