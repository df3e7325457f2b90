// SPDX-License-Identifier: Apache-2.0
#include "cpu/route/pair_scorer.h"

#include <algorithm>
#include <string>

namespace routerelay::cpu {
namespace {

// Below this many blocks the percentiles say nothing: no block is lifted (systems.md 4.3).
constexpr int64_t kFewBlocks = 16;

// RBS-Attention's beta: 0 up to the median radius, 1 from the 90th percentile on, linear between.
struct RadiusRange {
  float low = 0, high = 0;

  // Nearest rank over the complete blocks that the row sees; `radii` is a buffer.
  static RadiusRange of(const float* radius, int64_t n, std::vector<float>& radii) {
    if (n < kFewBlocks) return {};
    radii.assign(radius, radius + n);
    // A key that is not a number must not upset the ranking of the others.
    for (float& r : radii)
      if (!(r == r)) r = 0;
    const auto rank = [&](int64_t r) {
      const auto at = radii.begin() + (r - 1);
      std::nth_element(radii.begin(), at, radii.end());
      return *at;
    };
    return {rank(ceil_div(n, 2)), rank(ceil_div(9 * n, 10))};
  }
  float beta(float radius) const {
    return high > low ? std::clamp((radius - low) / (high - low), 0.0f, 1.0f) : 0.0f;
  }
};

}  // namespace

Status PairScorer::begin_heads(int, int, Exec& exec) {
  const int64_t bytes = 4 * (kPairScratchVectors * a_.q.head_dim + kPairScratchScores);
  if (!exec.workspace.reserve_threads(exec.threads(), bytes))
    return {Code::kOutOfMemory, "route: " + std::to_string(exec.threads() * bytes) +
                                    " bytes of scratch could not be had; use fewer threads"};
  workspace_ = &exec.workspace;
  scratch_.resize(static_cast<size_t>(exec.threads()));
  return {};
}

PairJob PairScorer::job_of(const Row& row, int kv_head, const ScoreRequest& request, Scratch& scratch) const {
  const Summary& s = a_.summary;
  const int64_t at = kv_head * s.n_blocks + row.first_block, dim = a_.q.head_dim;
  const auto from = [&](const std::vector<float>& array) {
    return array.empty() ? nullptr : array.data() + at * dim;
  };
  PairJob job{.q = a_.q.at(row.q_begin, request.q_head),
              .q_dtype = a_.q.dtype,
              .q_stride = a_.q.token_stride,
              .n_queries = row.q_count,
              .head_dim = static_cast<int>(dim),
              .scale = a_.scale,
              .ids = request.ids.data(),
              .n_ids = static_cast<int>(request.ids.size()),
              .centre = from(s.mean),
              .low = from(s.box_min),
              .high = from(s.box_max),
              .score = request.score,
              .rescue = request.rescue};
  if (request.rescue != nullptr) {
    const float* radius = s.radius.data() + at;
    const RadiusRange range = RadiusRange::of(radius, row.visible_keys / a_.rows.k_block, scratch.radii);
    scratch.lift.clear();
    for (const int32_t id : request.ids) scratch.lift.push_back(radius[id] * range.beta(radius[id]));
    job.lift = scratch.lift.data();
  }
  return job;
}

void PairScorer::score(int thread, int64_t row, int kv_head, std::span<const ScoreRequest> requests) {
  Scratch& scratch = scratch_[static_cast<size_t>(thread)];
  for (const ScoreRequest& request : requests) {
    PairJob job = job_of(a_.rows.rows[static_cast<size_t>(row)], kv_head, request, scratch);
    job.scratch = reinterpret_cast<float*>(workspace_->thread(thread));
    switch (a_.router.kind) {
      case Router::kBox:
        kernel_.box(job);
        break;
      case Router::kBall:
        kernel_.ball(job);
        break;
      default:
        kernel_.centroid(job);
    }
  }
}

}  // namespace routerelay::cpu
