// SPDX-License-Identifier: Apache-2.0
// Attend's one entry on CUDA: plan, put the rows in order, launch.
#include "cuda/attend/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/assert.h"
#include "cuda/attend/instances.h"
#include "cuda/attend/order.h"
#include "cuda/attend/plan.h"
#include "cuda/isa/device.h"

namespace routerelay::cuda {
namespace {

constexpr AttendLaunch kLaunches[] = {
#define RR_ATTEND_CONFIG(arch, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile) \
  RR_ATTEND_INSTANCE(arch, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile),
#include "cuda/attend/configs.def"
#undef RR_ATTEND_CONFIG
};

// Null: there is no such kernel.
AttendLaunch launch_of(const AttendConfig& config) {
  const auto configs = attend_configs();
  const auto found = std::find(configs.begin(), configs.end(), config);
  return found == configs.end() ? nullptr : kLaunches[found - configs.begin()];
}

OrderParams order_params(const AttendArgs& a, const AttendPlan& plan, int heads_per_tile,
                         std::byte* workspace) {
  OrderParams p;
  p.sequences = a.sequences;
  p.only = plan.sequence;
  p.n_sequences = static_cast<int32_t>(a.sequences == nullptr ? 1 : a.n_sequences);
  p.n_rows = static_cast<int32_t>(plan.n_rows);
  p.q_heads = static_cast<int32_t>(a.q.heads);
  p.kv_heads = static_cast<int32_t>(a.k.heads);
  p.q_block = a.q_block;
  p.k_block = a.k_block;
  p.causal = a.causal;
  p.row_offsets = a.routes.row_offsets;
  p.heads_per_list = static_cast<int32_t>(a.routes.heads == 0 ? 1 : a.q.heads / a.routes.heads);
  p.heads_per_tile = heads_per_tile;
  p.work = reinterpret_cast<Work*>(workspace);
  p.counts = reinterpret_cast<WorkCounts*>(workspace + plan.work_bytes);
  return p;
}

// The stride of an axis of one may be anything.
TensorView view_of(const Tensor& t, int64_t page_stride) {
  return {t.data, t.tokens > 1 ? t.token_stride : 0, t.heads > 1 ? t.head_stride : 0, page_stride};
}

Status make_tensor_maps(const AttendArgs& a, const AttendPlan& plan, const AttendConfig& config,
                        AttendParams& p) {
  constexpr int kQueries = 64;  // of a box
  RR_TRY(make_tensor_map(a.q, a.q.tokens, 0, kQueries, p.q));
  RR_TRY(make_tensor_map(a.out, a.out.tokens, 0, kQueries, p.out));
  const bool paged = a.pages.table != nullptr;
  p.box_keys = piece_keys(config);
  if (paged) p.box_keys = std::min(p.box_keys, a.pages.page_size);
  const int64_t page = paged ? a.pages.page_size : a.k.tokens;
  RR_TRY(make_tensor_map(a.k, page, plan.k_page_stride, p.box_keys, p.k));
  return make_tensor_map(a.v, page, plan.v_page_stride, p.box_keys, p.v);
}

AttendParams attend_params(const AttendArgs& a, const AttendPlan& plan, const OrderParams& order) {
  AttendParams p;
  p.q_view = view_of(a.q, 0);
  p.k_view = view_of(a.k, plan.k_page_stride);
  p.v_view = view_of(a.v, plan.v_page_stride);
  p.page_table = a.pages.table;
  p.max_pages = a.pages.max_pages;
  const int64_t page = a.pages.table == nullptr ? kMaxTokens : a.pages.page_size;
  p.page_bits = std::countr_zero(static_cast<uint64_t>(page));
  p.work = order.work;
  p.counts = order.counts;
  p.picked = a.routes.picked;
  p.n_work = static_cast<int32_t>(plan.n_work / order.heads_per_tile);
  p.heads_per_kv_head = order.q_heads / order.kv_heads;
  p.causal = a.causal;
  p.scale_log2 = plan.scale_log2;
  p.k_scale = a.k_scale;
  p.v_scale = a.v_scale;
  p.out_data = a.out.data;
  p.out_token_stride = a.out.token_stride;
  p.out_head_stride = a.out.head_stride;
  p.lse_log2 = a.lse_log2;
  p.lse_tokens = a.q.tokens;
  return p;
}

Status check_workspace(const AttendPlan& plan, const std::byte* workspace, int64_t workspace_bytes) {
  if (workspace == nullptr || workspace_bytes < plan.workspace_bytes)
    return {Code::kInvalidArgument,
            fmt::format("attend: workspace_bytes is {}; this call needs {}",
                        workspace == nullptr ? 0 : workspace_bytes, plan.workspace_bytes)};
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlign != 0)
    return {Code::kInvalidArgument,
            fmt::format("attend: workspace is not aligned to {} bytes; move it", kWorkspaceAlign)};
  return {};
}

// Hopper runs what is written for it, and for the rest what every later device runs too.
AttendConfig choose(int compute_capability, const Forced* forced, const AttendPlan& plan) {
  if (forced != nullptr) return config_for(plan, forced->arch, forced->shares_tiles);
  const AttendConfig own = config_for(plan, Arch::sm90, true);
  return compute_capability == 90 && launch_of(own) != nullptr ? own : plan.config;
}

// `forced`: null, or instead of the device's own.
Status attend(const Forced* forced, const AttendArgs& args, std::byte* workspace, int64_t workspace_bytes,
              CUstream_st* stream) {
  const Result<AttendPlan> planned = plan_attend(args);
  RR_TRY(planned.status());
  const AttendPlan& plan = planned.value();
  RR_TRY(check_workspace(plan, workspace, workspace_bytes));
  const Result<Device> device = current_device();
  RR_TRY(device.status());
  const int capability = device.value().compute_capability;
  if (capability < 80)
    return {Code::kUnsupported,
            fmt::format("attend: the current device is sm_{}; legal: sm_80 and later", capability)};
  if (is_quantised(plan.config) && capability != 90)
    return {Code::kUnsupported,
            fmt::format("attend: the current device is sm_{}; with e4m3 keys legal: sm_90", capability)};
  const AttendConfig config = choose(capability, forced, plan);
  const AttendLaunch launch = launch_of(config);
  RR_ASSERT(launch != nullptr);
  const OrderParams order = order_params(args, plan, config.heads_per_tile, workspace);
  AttendParams params = attend_params(args, plan, order);
  if (config.arch == Arch::sm90) RR_TRY(make_tensor_maps(args, plan, config, params));
  RR_TRY(
      device_status(cudaMemsetAsync(order.counts, 0, sizeof(WorkCounts), stream), "clearing the workspace"));
  RR_TRY(device_status(launch_order(order, stream), "launching the order of rows"));
  const int multiprocessors = forced != nullptr && forced->multiprocessors > 0
                                  ? forced->multiprocessors
                                  : device.value().multiprocessors;
  return device_status(launch(params, multiprocessors, stream), "launching attend");
}

}  // namespace

Status attend(const AttendArgs& args, std::byte* workspace, int64_t workspace_bytes, CUstream_st* stream) {
  return attend(nullptr, args, workspace, workspace_bytes, stream);
}

Status attend_with(const Forced& forced, const AttendArgs& args, std::byte* workspace,
                   int64_t workspace_bytes, CUstream_st* stream) {
  return attend(&forced, args, workspace, workspace_bytes, stream);
}

}  // namespace routerelay::cuda
