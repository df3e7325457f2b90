// SPDX-License-Identifier: Apache-2.0
#include "cpu/route/softmax_scorer.h"

#include <algorithm>
#include <string>

#include "core/assert.h"

namespace routerelay::cpu {
namespace {

// Slots packed by one thread in a row, so that the reads of one announce the next.
constexpr int64_t kSlotsPerPack = 4;

}  // namespace

SoftmaxScorer::SoftmaxScorer(const ScorerArgs& args, const SoftmaxKernel& kernel,
                             const PairKernel& pair_kernel)
    : a_(args),
      kernel_(kernel),
      pair_kernel_(pair_kernel),
      plan_(plan_router({args.router, args.rows, args.q.head_dim, args.summary.subs_per_block,
                         static_cast<int>(args.q.heads / args.k.heads)},
                        kernel)),
      layout_(ThreadLayout::of(plan_, kernel, args.q.head_dim)) {}

Status SoftmaxScorer::begin_heads(int kv_first, int kv_count, Exec& exec) {
  const int64_t shared = kv_count * plan_.head_bytes();
  panels_ = exec.workspace.shared(shared);
  if (panels_ == nullptr || !exec.workspace.reserve_threads(exec.threads(), layout_.bytes))
    return {Code::kOutOfMemory, "route: " + std::to_string(shared + exec.threads() * layout_.bytes) +
                                    " bytes for packed keys and scratch could not be had; use fewer threads"};
  workspace_ = &exec.workspace;
  kv_first_ = kv_first;
  jobs_.resize(static_cast<size_t>(exec.threads()));
  const int64_t slot_bytes = plan_.shape.panels_per_slot * plan_.shape.panel_bytes;
  const int64_t items = ceil_div(plan_.n_slots, kSlotsPerPack);
  return exec.for_each(kv_count * items, [&](int thread, int64_t i) {
    const int64_t head = i / items, first = i % items * kSlotsPerPack;
    for (int64_t slot = first; slot < std::min(first + kSlotsPerPack, plan_.n_slots); ++slot)
      pack_slot(kv_first + static_cast<int>(head), slot, exec.workspace.thread(thread) + layout_.tokens,
                panels_ + head * plan_.head_bytes() + slot * slot_bytes);
  });
}

void SoftmaxScorer::score(int thread, int64_t row, int kv_head, std::span<const ScoreRequest> requests) {
  const RowRequests one{row, requests};
  score_rows(thread, kv_head, {&one, 1});
}

void SoftmaxScorer::score_rows(int thread, int kv_head, std::span<const RowRequests> rows) {
  Job& job = jobs_[static_cast<size_t>(thread)];
  job.base = workspace_->thread(thread);
  for (const RowRequests& r : rows)
    for (const ScoreRequest& request : r.requests) {
      const int vectors = most_vectors(request);
      RR_ASSERT(vectors <= plan_.max_vectors);
      if (job.n_vectors + vectors > plan_.max_vectors) run(kv_head, job);
      add_request(a_.rows.rows[static_cast<size_t>(r.row)], kv_head, request, job);
    }
  run(kv_head, job);
}

void SoftmaxScorer::run(int kv_head, Job& job) const {
  const auto at = [&job]<class T>(int64_t offset, T*) { return reinterpret_cast<T*>(job.base + offset); };
  constexpr float* kFloats = nullptr;
  kernel_.score({.shape = plan_.shape,
                 .panels = panels_ + (kv_head - kv_first_) * plan_.head_bytes(),
                 .vectors = job.base + layout_.vectors,
                 .n_vectors = job.n_vectors,
                 .limits = at(layout_.limits, static_cast<int64_t*>(nullptr)),
                 .patch = at(layout_.patch, kFloats),
                 .requests = job.requests.data(),
                 .n_requests = static_cast<int>(job.requests.size()),
                 .scratch = {.s = at(layout_.s, kFloats),
                             .gathered = job.base + layout_.gathered,
                             .sums = at(layout_.sums, kFloats),
                             .shifts = at(layout_.shifts, kFloats),
                             .takers = at(layout_.takers, static_cast<SoftmaxTaker*>(nullptr)),
                             .progress = at(layout_.progress, static_cast<SoftmaxProgress*>(nullptr)),
                             .sum_pitch = plan_.sum_pitch}});
  job.n_vectors = 0;
  job.requests.clear();
}

}  // namespace routerelay::cpu
