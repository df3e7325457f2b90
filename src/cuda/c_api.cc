// SPDX-License-Identifier: Apache-2.0
// The C ABI of attend on CUDA: translate, catch. What is legal is decided by plan_attend.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "routerelay/cuda.hpp"
#include "routerelay/routerelay_cuda.h"

using routerelay::Code;
using routerelay::DType;
using routerelay::Status;

namespace {

thread_local std::string last_error;

template <class Body>
rr_status guarded(const Body& body) noexcept {
  last_error.clear();
  try {
    const Status status = body();
    last_error = status.message();
    return static_cast<rr_status>(status.code());
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
    return RR_OUT_OF_MEMORY;
  } catch (...) {
    last_error = "internal error";
    return RR_INTERNAL;
  }
}

Status invalid(std::string text) {
  return {Code::kInvalidArgument, "attend: " + std::move(text)};
}

Status tensor_of(const char* name, const rr_tensor* t, routerelay::MutableTensor& out) {
  if (t == nullptr) return invalid(fmt::format("{} is null; give a tensor", name));
  if (t->device_type != RR_DEVICE_CUDA)
    return invalid(
        fmt::format("{}.device_type is {}; legal: {} (CUDA)", name, t->device_type, RR_DEVICE_CUDA));
  if (t->ndim != 3)
    return invalid(fmt::format("{}.ndim is {}; legal: 3 (tokens, heads, head_dim)", name, t->ndim));
  if (t->shape == nullptr) return invalid(fmt::format("{}.shape is null; give its three sizes", name));
  const bool is_e4m3 = t->dtype_code == RR_E4M3 && t->dtype_bits == 8;
  if ((!is_e4m3 && (t->dtype_bits != 16 || (t->dtype_code != RR_FLOAT && t->dtype_code != RR_BFLOAT))) ||
      t->dtype_lanes != 1)
    return invalid(fmt::format(
        "{}.dtype is code {}, {} bits, {} lanes; legal: (2, 16, 1), (4, 16, 1), for k and v also (10, 8, 1)",
        name, t->dtype_code, t->dtype_bits, t->dtype_lanes));
  out.dtype = is_e4m3 ? DType::kE4M3 : t->dtype_code == RR_FLOAT ? DType::kF16 : DType::kBF16;
  if (t->data != nullptr) out.data = static_cast<std::byte*>(t->data) + t->byte_offset;
  out.tokens = t->shape[0], out.heads = t->shape[1], out.head_dim = t->shape[2];
  if (t->strides == nullptr) {
    // plan_attend judges the sizes. Until then they may be anything, and overflow must have a meaning.
    out.head_stride = out.head_dim;
    out.token_stride =
        static_cast<int64_t>(static_cast<uint64_t>(out.heads) * static_cast<uint64_t>(out.head_dim));
    return {};
  }
  if (t->strides[2] != 1) return invalid(fmt::format("{}.strides[2] is {}; legal: 1", name, t->strides[2]));
  out.head_stride = t->strides[1];
  out.token_stride = t->strides[0];
  return {};
}

static_assert(sizeof(routerelay::Sequence) == sizeof(rr_sequence));

Status args_of(const rr_cuda_attend_args* given, routerelay::cuda::AttendArgs& out) {
  if (given == nullptr) return invalid("args is null; give them");
  constexpr uint32_t kSizeAndFlags = 8;
  if (given->struct_size < kSizeAndFlags)
    return invalid(fmt::format("args.struct_size is {}; set it to sizeof(*args), {} here", given->struct_size,
                               sizeof(rr_cuda_attend_args)));
  rr_cuda_attend_args a{};
  std::memcpy(&a, given, std::min<size_t>(given->struct_size, sizeof(a)));
  if ((a.flags & ~RR_CUDA_CAUSAL) != 0)
    return invalid(fmt::format("args.flags is {:#x}; this version knows {:#x}", a.flags, RR_CUDA_CAUSAL));
  routerelay::MutableTensor q, k, v;
  RR_TRY(tensor_of("q", a.q, q));
  RR_TRY(tensor_of("k", a.k, k));
  RR_TRY(tensor_of("v", a.v, v));
  RR_TRY(tensor_of("out", a.out, out.out));
  out.q = q, out.k = k, out.v = v;
  out.lse_log2 = a.lse_log2;
  out.sequences = reinterpret_cast<const routerelay::Sequence*>(a.sequences);
  out.n_sequences = a.n_sequences;
  out.n_rows = a.n_rows;
  out.routes = {a.row_offsets, a.picked, a.list_heads};
  out.k_scale = a.k_scale, out.v_scale = a.v_scale;
  out.pages = {a.page_table, a.max_pages, a.page_size, a.page_stride};
  if (a.q_block != 0) out.q_block = a.q_block;
  if (a.k_block != 0) out.k_block = a.k_block;
  out.causal = (a.flags & RR_CUDA_CAUSAL) != 0;
  out.scale = a.scale;
  return {};
}

}  // namespace

const char* rr_cuda_version(void) {
  return RR_VERSION;
}

const char* rr_cuda_last_error(void) {
  return last_error.c_str();
}

rr_status rr_cuda_attend_workspace_bytes(const rr_cuda_attend_args* args, int64_t* bytes) {
  return guarded([&]() -> Status {
    if (bytes == nullptr) return invalid("bytes is null; give its address");
    routerelay::cuda::AttendArgs a;
    RR_TRY(args_of(args, a));
    const auto needed = routerelay::cuda::attend_workspace_bytes(a);
    if (needed.ok()) *bytes = needed.value();
    return needed.status();
  });
}

rr_status rr_cuda_attend(const rr_cuda_attend_args* args, void* workspace, int64_t workspace_bytes,
                         void* stream) {
  return guarded([&]() -> Status {
    routerelay::cuda::AttendArgs a;
    RR_TRY(args_of(args, a));
    return routerelay::cuda::attend(a, static_cast<std::byte*>(workspace), workspace_bytes,
                                    static_cast<CUstream_st*>(stream));
  });
}
