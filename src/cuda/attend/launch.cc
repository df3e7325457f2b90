// SPDX-License-Identifier: Apache-2.0
// Attend's one entry on CUDA: plan, put the rows in order, launch.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "cuda/attend/instances.h"
#include "cuda/attend/order.h"
#include "cuda/attend/plan.h"
#include "cuda/isa/device.h"

namespace routerelay::cuda {
namespace {

constexpr AttendLaunch kLaunches[] = {
#define RR_ATTEND_CONFIG(arch, dtype, head_dim, q_block, k_block) \
  RR_ATTEND_INSTANCE(arch, dtype, head_dim, q_block, k_block),
#include "cuda/attend/configs.def"
#undef RR_ATTEND_CONFIG
};

AttendLaunch launch_of(const AttendConfig& config) {
  const auto configs = attend_configs();
  size_t i = 0;
  while (configs[i] != config) ++i;
  return kLaunches[i];
}

OrderParams order_params(const AttendArgs& a, const AttendPlan& plan, std::byte* workspace) {
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
  p.work = reinterpret_cast<Work*>(workspace);
  p.counts = reinterpret_cast<WorkCounts*>(workspace + plan.work_bytes);
  return p;
}

Status attend_params(const AttendArgs& a, const AttendPlan& plan, const OrderParams& order, AttendParams& p) {
  constexpr int kQueries = 64;  // of a box
  RR_TRY(make_tensor_map(a.q, a.q.tokens, 0, kQueries, p.q));
  RR_TRY(make_tensor_map(a.out, a.out.tokens, 0, kQueries, p.out));
  const bool paged = a.pages.table != nullptr;
  p.box_keys = piece_keys(plan.config);
  if (paged) p.box_keys = std::min(p.box_keys, a.pages.page_size);
  const auto map_keys = [&](const Tensor& t, CUtensorMap& map) {
    if (!paged) return make_tensor_map(t, t.tokens, 0, p.box_keys, map);
    const int64_t stride =
        a.pages.page_stride != 0 ? a.pages.page_stride : a.pages.page_size * t.token_stride;
    return make_tensor_map(t, a.pages.page_size, stride, p.box_keys, map);
  };
  RR_TRY(map_keys(a.k, p.k));
  RR_TRY(map_keys(a.v, p.v));
  p.page_table = a.pages.table;
  p.max_pages = a.pages.max_pages;
  p.page_bits = paged ? std::countr_zero(static_cast<uint32_t>(a.pages.page_size)) : 0;
  p.work = order.work;
  p.counts = order.counts;
  p.picked = a.routes.picked;
  p.n_work = static_cast<int32_t>(plan.n_work);
  p.heads_per_kv_head = order.q_heads / order.kv_heads;
  p.causal = a.causal;
  p.scale_log2 = plan.scale_log2;
  p.out_data = a.out.data;
  p.out_token_stride = a.out.token_stride;
  p.out_head_stride = a.out.head_stride;
  p.lse_log2 = a.lse_log2;
  p.lse_tokens = a.q.tokens;
  return {};
}

}  // namespace

Status attend(const AttendArgs& args, std::byte* workspace, int64_t workspace_bytes, CUstream_st* stream) {
  const Result<AttendPlan> planned = plan_attend(args);
  RR_TRY(planned.status());
  const AttendPlan& plan = planned.value();
  if (workspace == nullptr || workspace_bytes < plan.workspace_bytes)
    return {Code::kInvalidArgument,
            fmt::format("attend: workspace_bytes is {}; this call needs {}",
                        workspace == nullptr ? 0 : workspace_bytes, plan.workspace_bytes)};
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlign != 0)
    return {Code::kInvalidArgument,
            fmt::format("attend: workspace is not aligned to {} bytes; move it", kWorkspaceAlign)};
  const Result<Device> device = current_device();
  RR_TRY(device.status());
  if (device.value().compute_capability != 90)
    return {Code::kUnsupported, fmt::format("attend: the current device is sm_{}; this build has sm_90",
                                            device.value().compute_capability)};
  const OrderParams order = order_params(args, plan, workspace);
  AttendParams params;
  RR_TRY(attend_params(args, plan, order, params));
  RR_CUDA(cudaMemsetAsync(order.counts, 0, sizeof(WorkCounts), stream));
  launch_order(order, stream);
  RR_CUDA(cudaGetLastError());
  RR_CUDA(launch_of(plan.config)(params, device.value().multiprocessors, stream));
  return {};
}

}  // namespace routerelay::cuda
