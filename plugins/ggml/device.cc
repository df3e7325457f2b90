// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string_view>

#include "compute.h"
#include "control.h"
#include "say.h"
#include "tally.h"

namespace routerelay::ggml {
namespace {

constexpr const char* kName = "RouteRelay";
constexpr const char* kDescription = "prompt attention on the CPU";
constexpr uint8_t kGuid[16] = {0x52, 0x6f, 0x75, 0x74, 0x65, 0x52, 0x65, 0x6c,
                               0x61, 0x79, 0x2d, 0x67, 0x67, 0x6d, 0x6c, 0x31};

const Plugin* g_plugin = nullptr;  // set once, before the host gets the entry
pid_t g_process = 0;               // that it was set in

TraceSink& trace_sink() {
  static TraceSink* const one = new TraceSink;
  return *one;
}

// Not in a process that was forked off: it would wait for threads that it has not, and put the counts of its birth in
// the place of newer ones.
int write_reports_at_exit() {
  if (::getpid() != g_process) return 0;
  trace_sink().give_up();
  tally().flush(true);
  return 0;
}

// What a backend pointer of ours points to: the host reads the bytes, we come back through `context`.
struct Handle {
  alignas(16) std::byte bytes[kMaxBackendBytes] = {};
  Instance instance;

  Backend* backend() { return reinterpret_cast<Backend*>(bytes); }
};

Handle& handle_of(Backend* backend) {
  return *member<Handle*>(backend, g_plugin->host.layout.context);
}

// Nothing may be thrown into the host, which is C.
template <class Result, class Fn>
Result guarded(Result on_error, const Fn& fn) noexcept {
  try {
    return fn();
  } catch (const std::exception& e) {
    say(e.what());
  } catch (...) {
    say("an unknown exception was stopped at the host's door");
  }
  return on_error;
}

void free_backend(Backend* backend) {
  const std::unique_ptr<Handle> handle(&handle_of(backend));
  guarded(0, [&] {
    trace_sink().finish(&handle->instance);
    tally().flush(false);
    return 0;
  });
}

int32_t graph_compute(Backend* backend, Graph* graph) {
  return guarded(kStatusFailed, [&] { return handle_of(backend).instance.graph_compute(graph); });
}

// Fails only without memory: the host does not load the model when it gets nullptr.
Backend* init_backend(Device* device, const char*) {
  return guarded(static_cast<Backend*>(nullptr), [&] {
    const BackendLayout& layout = g_plugin->host.layout;
    tally().serves();
    auto handle = std::unique_ptr<Handle>(new Handle{{}, Instance(*g_plugin, trace_sink())});
    Backend* backend = handle->backend();
    member<const uint8_t*>(backend, kBackendGuid) = kGuid;
    member<const char* (*)(Backend*)>(backend, kBackendGetName) = [](Backend*) { return kName; };
    member<void (*)(Backend*)>(backend, kBackendFree) = free_backend;
    member<int32_t (*)(Backend*, Graph*)>(backend, layout.graph_compute) = graph_compute;
    member<Device*>(backend, layout.device) = device;
    member<Handle*>(backend, layout.context) = handle.get();
    return handle.release()->backend();
  });
}

void get_props(Device*, DeviceProps* props) {
  // Only what every version has: a newer one's fifth capability stays as the host prepared it.
  props->name = kName;
  props->description = kDescription;
  props->memory_free = props->memory_total = 0;
  props->type = kDeviceAccel;
  for (int i = 0; i < 4; ++i) props->caps[i] = false;
}

bool supports_op(Device*, const HostTensor* node) {
  const Host& host = g_plugin->host;
  if (host.op.is_free(node->op)) return true;
  if (node->op != host.op.flash_attn_ext) return false;
  const Reason reason = why_declined(*node, g_plugin->claims);
  tally().asked(reason);
  return reason == Reason::kNone;
}

void set_n_threads(Backend* backend, int threads) {
  handle_of(backend).instance.set_threads(threads);
}
void set_abort_callback(Backend* backend, AbortCallback abort, void* data) {
  handle_of(backend).instance.set_abort(abort, data);
}

void* get_proc_address(Registry*, const char* name) {
  const std::string_view wanted = name;
  if (wanted == "ggml_backend_set_n_threads") return reinterpret_cast<void*>(set_n_threads);
  if (wanted == "ggml_backend_set_abort_callback") return reinterpret_cast<void*>(set_abort_callback);
  return control_function(wanted);
}

Device g_device = {
    .table = {
        .get_name = [](Device*) { return kName; },
        .get_description = [](Device*) { return kDescription; },
        .get_memory = [](Device*, size_t* free, size_t* total) { *free = *total = 0; },
        .get_type = [](Device*) { return kDeviceAccel; },
        .get_props = get_props,
        .init_backend = init_backend,
        // The host's own type: calls are moved here only between backends with the same buffer type.
        .get_buffer_type = [](Device*) { return g_plugin->host.call.backend_cpu_buffer_type(); },
        .supports_op = supports_op,
        // Every host buffer is read in place, so splits have no inputs to copy.
        .supports_buft = [](Device*,
                            BufferType* type) { return g_plugin->host.call.backend_buft_is_host(type); },
    },
    .registry = nullptr,
    .context = nullptr,
};

Registry g_registry = {
    .api_version = 0,
    .table = {.get_name = [](Registry*) { return kName; },
              .get_device_count = [](Registry*) -> size_t { return 1; },
              .get_device = [](Registry*, size_t index) { return index == 0 ? &g_device : nullptr; },
              .get_proc_address = get_proc_address},
    .context = nullptr,
};

}  // namespace

Registry* registry_entry(const Plugin& plugin) {
  if (g_plugin == nullptr) {
    g_plugin = &plugin;
    g_process = ::getpid();
    g_registry.api_version = plugin.host.api;
    g_device.registry = &g_registry;
    trace_sink().begin(plugin.env.trace, plugin.env.trace_layers);
    // Instances that the host leaks are reported too. Hosts never unload, so the address stays good.
    std::atexit([] { guarded(0, write_reports_at_exit); });
  }
  return &g_registry;
}

}  // namespace routerelay::ggml
