// SPDX-License-Identifier: Apache-2.0
// sub, sampled and antidiag: each packs what stands for a KV head's keys into panels, once per layer and head, and what
// stands for a row's queries into vectors; the kernel does the rest the same way for all three.
#pragma once

#include <vector>

#include "cpu/route/plan.h"
#include "cpu/route/scorer.h"

namespace routerelay::cpu {

class SoftmaxScorer final : public RowScorer {
 public:
  SoftmaxScorer(const ScorerArgs& args, const SoftmaxKernel& kernel, const PairKernel& pair_kernel);

  Status begin_heads(int kv_first, int kv_count, Exec& exec) override;
  void score(int thread, int64_t row, int kv_head, std::span<const ScoreRequest> requests) override;
  int rows_at_once() const override { return plan_.rows_at_once; }
  void score_rows(int thread, int kv_head, std::span<const RowRequests> rows) override;

 private:
  // The job that a thread is collecting.
  struct Job {
    std::byte* base = nullptr;
    int n_vectors = 0;
    std::vector<SoftmaxRequest> requests;
  };

  // softmax_pack.cc
  void pack_slot(int kv_head, int64_t slot, std::byte* tokens, std::byte* out) const;
  const std::byte* column_token(int kv_head, const BlockRun& run, int64_t block, int column, int piece) const;

  // Of the request's row; fewer where it is short.
  int most_vectors(const ScoreRequest& request) const {
    const bool own = a_.router.kind == Router::kSampled && request.samples > 0;
    return own ? request.samples : plan_.vectors_per_row;
  }
  // softmax_vectors.cc: vectors, limits and patches of one row and head, behind those of `job`.
  void add_request(const Row& row, int kv_head, const ScoreRequest& request, Job& job) const;
  void add_sampled(const Row& row, int q_head, int samples, Job& job) const;
  void add_groups(const Row& row, int q_head, Job& job) const;
  void add_antidiagonals(const Row& row, int kv_head, int q_head, SoftmaxRequest& request, Job& job) const;
  float patched_score(const Row& row, int kv_head, int q_head, int32_t group) const;
  void add_vector(const Row& row, int32_t last_query, Job& job) const;
  int64_t first_packed_block(const Row& row) const {
    return plan_.first_slot[static_cast<size_t>(row.sequence)] * plan_.shape.blocks_per_slot;
  }
  std::byte* next_vector(Job& job) const {
    return job.base + layout_.vectors + job.n_vectors * plan_.vector_bytes;
  }

  void run(int kv_head, Job& job) const;

  ScorerArgs a_;
  const SoftmaxKernel& kernel_;
  const PairKernel& pair_kernel_;
  RouterPlan plan_;
  ThreadLayout layout_;
  std::byte* panels_ = nullptr;  // [kv_count][plan_.head_bytes()]
  int kv_first_ = 0;
  Workspace* workspace_ = nullptr;
  std::vector<Job> jobs_;  // [threads]
};

}  // namespace routerelay::cpu
