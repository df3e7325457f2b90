// SPDX-License-Identifier: Apache-2.0
// The C ABI over the C++ API: check pointers and sizes, translate, catch. Everything else is decided below.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "routerelay/engine.hpp"
#include "routerelay/routerelay.h"

using routerelay::Code;
using routerelay::DType;
using routerelay::Status;

struct rr_engine {
  // Shared with its passes, so that the order in which a garbage collector drops them does not matter.
  std::shared_ptr<routerelay::Engine> engine;
};
struct rr_options {
  routerelay::Options options;
};
struct rr_pass {
  std::shared_ptr<routerelay::Engine> engine;
  routerelay::Pass pass;
  std::string report;
};

namespace {

static_assert(static_cast<int>(Code::kOk) == RR_OK && static_cast<int>(Code::kAborted) == RR_ABORTED &&
              static_cast<int>(Code::kInvalidArgument) == RR_INVALID_ARGUMENT &&
              static_cast<int>(Code::kUnsupported) == RR_UNSUPPORTED &&
              static_cast<int>(Code::kOutOfMemory) == RR_OUT_OF_MEMORY &&
              static_cast<int>(Code::kDeviceError) == RR_DEVICE_ERROR &&
              static_cast<int>(Code::kInternal) == RR_INTERNAL);

thread_local std::string last_error;

// Runs the body of one C function: its status becomes a number and the thread's text; nothing is thrown past here.
template <class Body>
rr_status guarded(const Body& body) noexcept {
  last_error.clear();
  try {
    Status status = body();
    last_error = status.message();
    return static_cast<rr_status>(status.code());
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";  // short enough to need none
    return RR_OUT_OF_MEMORY;
  } catch (...) {
    last_error = "internal error";
    return RR_INTERNAL;
  }
}

template <class... T>
Status invalid(fmt::format_string<T...> text, T&&... args) {
  return {Code::kInvalidArgument, fmt::format(text, std::forward<T>(args)...)};
}

Status not_null(const char* function, const char* name, const void* pointer) {
  if (pointer != nullptr) return {};
  return invalid("{}: {} is null; give a valid one", function, name);
}

constexpr uint32_t kSizeAndFlags = 8;

template <class T>
Status check_struct(const char* function, const char* name, const T& given, uint32_t known_flags) {
  if (given.struct_size < kSizeAndFlags)
    return invalid("{}: {}.struct_size is {}; set it to sizeof(*{}), {} here", function, name,
                   given.struct_size, name, sizeof(T));
  if ((given.flags & ~known_flags) != 0)
    return invalid("{}: {}.flags is {:#x}; this version knows {:#x}", function, name, given.flags,
                   known_flags);
  return {};
}

// What the caller's version of the struct holds, and zero for fields that it does not have. Null: all zero.
template <class T>
Status read_struct(const char* function, const char* name, const T* given, uint32_t known_flags, T& out) {
  out = T{};
  if (given == nullptr) return {};
  RR_TRY(check_struct(function, name, *given, known_flags));
  std::memcpy(&out, given, std::min<size_t>(given->struct_size, sizeof(T)));
  return {};
}

// Fills what the caller's version of the struct has room for; struct_size stays the caller's.
template <class T>
Status write_struct(const char* function, const char* name, T* target, T filled) {
  RR_TRY(not_null(function, name, target));
  RR_TRY(check_struct(function, name, *target, ~0u));
  filled.struct_size = target->struct_size;
  std::memcpy(target, &filled, std::min<size_t>(target->struct_size, sizeof(T)));
  return {};
}

Status dtype_of(const char* name, const rr_tensor& t, DType& out) {
  if (t.dtype_lanes == 1 && t.dtype_code == RR_FLOAT && t.dtype_bits == 32) {
    out = DType::kF32;
  } else if (t.dtype_lanes == 1 && t.dtype_code == RR_FLOAT && t.dtype_bits == 16) {
    out = DType::kF16;
  } else if (t.dtype_lanes == 1 && t.dtype_code == RR_BFLOAT && t.dtype_bits == 16) {
    out = DType::kBF16;
  } else if (t.dtype_lanes == 1 && t.dtype_code == RR_Q8_0 && t.dtype_bits == 8) {
    out = DType::kQ8_0;
  } else {
    return invalid(
        "layer: {}.dtype is code {}, {} bits, {} lanes; legal: (2, 32, 1), (2, 16, 1), (4, 16, 1), and for k "
        "and v (128, 8, 1)",
        name, t.dtype_code, t.dtype_bits, t.dtype_lanes);
  }
  return {};
}

Status tensor_of(const char* name, const rr_tensor* t, routerelay::MutableTensor& out) {
  RR_TRY(not_null("layer", name, t));
  if (t->device_type != RR_DEVICE_CPU)
    return invalid("layer: {}.device_type is {}; legal: {} (host memory)", name, t->device_type,
                   RR_DEVICE_CPU);
  if (t->ndim != 3) return invalid("layer: {}.ndim is {}; legal: 3 (tokens, heads, head_dim)", name, t->ndim);
  if (t->shape == nullptr) return invalid("layer: {}.shape is null; give its three sizes", name);
  RR_TRY(dtype_of(name, *t, out.dtype));
  auto* const base = static_cast<std::byte*>(t->data);
  out.tokens = t->shape[0];
  out.heads = t->shape[1];
  out.head_dim = t->shape[2];
  if (base != nullptr) out.data = base + t->byte_offset;
  if (t->strides == nullptr) {
    // The engine judges the sizes. Until then they may be anything, and overflow must have a meaning.
    out.token_stride =
        static_cast<int64_t>(static_cast<uint64_t>(out.heads) * static_cast<uint64_t>(out.head_dim));
    out.head_stride = out.head_dim;
    return {};
  }
  if (t->strides[2] != 1) return invalid("layer: {}.strides[2] is {}; legal: 1", name, t->strides[2]);
  out.token_stride = t->strides[0];
  out.head_stride = t->strides[1];
  return {};
}

Status sequences_of(const rr_layer_args& a, std::vector<routerelay::Sequence>& out) {
  if (a.n_sequences < 0 || (a.n_sequences > 0) != (a.sequences != nullptr))
    return invalid(
        "layer: n_sequences is {} and sequences is {}; legal: 0 with null, or a count with its array",
        a.n_sequences, a.sequences == nullptr ? "null" : "not null");
  out.reserve(static_cast<size_t>(a.n_sequences));
  for (int64_t i = 0; i < a.n_sequences; ++i) {
    const rr_sequence& s = a.sequences[i];
    out.push_back({s.q_begin, s.q_len, s.k_begin, s.k_len, s.q_offset});
  }
  return {};
}

std::string text_of(const char* text) {
  return text == nullptr ? "" : text;
}

}  // namespace

extern "C" {

uint32_t rr_abi_version(void) {
  return RR_ABI_MAJOR << 16 | RR_ABI_MINOR;
}

const char* rr_version(void) {
  return RR_VERSION;
}

const char* rr_last_error(void) {
  return last_error.c_str();
}

rr_status rr_engine_create(const rr_engine_args* args, rr_engine** engine) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("engine_create", "engine", engine));
    *engine = nullptr;
    rr_engine_args a;
    RR_TRY(read_struct("engine_create", "args", args, 0, a));
    auto made = routerelay::Engine::create({text_of(a.backend), text_of(a.isa), a.threads});
    if (!made.ok()) return made.status();
    *engine = new rr_engine{std::make_shared<routerelay::Engine>(std::move(made).value())};
    return {};
  });
}

void rr_engine_destroy(rr_engine* engine) {
  delete engine;
}

rr_status rr_engine_get_info(const rr_engine* engine, rr_engine_info* info) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("engine_get_info", "engine", engine));
    const routerelay::Engine& e = *engine->engine;
    return write_struct("engine_get_info", "info", info, {0, 0, e.backend(), name_of(e.isa()), e.threads()});
  });
}

rr_status rr_engine_set_threads(rr_engine* engine, int32_t threads) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("engine_set_threads", "engine", engine));
    return engine->engine->set_threads(threads);
  });
}

rr_status rr_engine_set_abort(rr_engine* engine, int (*poll)(void* user), void* user) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("engine_set_abort", "engine", engine));
    engine->engine->set_abort(poll == nullptr ? std::function<bool()>() : [=] { return poll(user) != 0; });
    return {};
  });
}

rr_status rr_options_create(const char* preset, rr_options** options) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("options_create", "options", options));
    *options = nullptr;
    RR_TRY(not_null("options_create", "preset", preset));
    auto made = routerelay::Options::from_preset(preset);
    if (!made.ok()) return made.status();
    *options = new rr_options{std::move(made).value()};
    return {};
  });
}

void rr_options_destroy(rr_options* options) {
  delete options;
}

rr_status rr_options_set(rr_options* options, const char* key, const char* value) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("options_set", "options", options));
    RR_TRY(not_null("options_set", "key", key));
    RR_TRY(not_null("options_set", "value", value));
    return options->options.set(key, value);
  });
}

rr_status rr_pass_begin(rr_engine* engine, const rr_options* options, const rr_pass_args* args,
                        rr_pass** pass) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("pass_begin", "pass", pass));
    *pass = nullptr;
    RR_TRY(not_null("pass_begin", "engine", engine));
    rr_pass_args a;
    RR_TRY(read_struct("pass_begin", "args", args, RR_PASS_FINAL_CHUNK, a));
    const routerelay::Pass::Args begin{.final_chunk = (a.flags & RR_PASS_FINAL_CHUNK) != 0};
    auto made =
        routerelay::Pass::begin(*engine->engine, options ? options->options : routerelay::Options{}, begin);
    if (!made.ok()) return made.status();
    *pass = new rr_pass{engine->engine, std::move(made).value(), {}};
    return {};
  });
}

rr_status rr_pass_layer(rr_pass* pass, const rr_layer_args* args) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("pass_layer", "pass", pass));
    RR_TRY(not_null("pass_layer", "args", args));
    rr_layer_args a;
    RR_TRY(read_struct("pass_layer", "args", args, RR_LAYER_KNOWN, a));
    routerelay::MutableTensor q, k, v, out;
    RR_TRY(tensor_of("q", a.q, q));
    RR_TRY(tensor_of("k", a.k, k));
    RR_TRY(tensor_of("v", a.v, v));
    RR_TRY(tensor_of("out", a.out, out));
    std::vector<routerelay::Sequence> sequences;
    RR_TRY(sequences_of(a, sequences));
    return pass->pass.layer({.q = q,
                             .k = k,
                             .v = v,
                             .out = out,
                             .lse_log2 = a.lse_log2,
                             .sequences = sequences,
                             .scale = a.scale,
                             .layer = (a.flags & RR_LAYER_KNOWN) != 0 ? a.layer : -1});
  });
}

rr_status rr_pass_report_json(rr_pass* pass, const char** json) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("pass_report_json", "json", json));
    *json = nullptr;
    RR_TRY(not_null("pass_report_json", "pass", pass));
    pass->report = pass->pass.report().to_json();
    *json = pass->report.c_str();
    return {};
  });
}

rr_status rr_pass_routes(const rr_pass* pass, rr_routes* routes) {
  return guarded([&]() -> Status {
    RR_TRY(not_null("pass_routes", "pass", pass));
    const auto offsets = pass->pass.row_offsets();
    const auto picked = pass->pass.picked();
    return write_struct("pass_routes", "routes", routes,
                        {0, 0, offsets.data(), static_cast<int64_t>(offsets.size()), picked.data(),
                         static_cast<int64_t>(picked.size())});
  });
}

void rr_pass_end(rr_pass* pass) {
  delete pass;
}

}  // extern "C"
