// SPDX-License-Identifier: Apache-2.0
// What stands for the queries of a row -> packed vectors, and how far each of them sees.
#include <algorithm>
#include <cstring>
#include <numbers>

#include "core/convert.h"
#include "cpu/route/softmax_scorer.h"

namespace routerelay::cpu {

void SoftmaxScorer::add_request(const Row& row, int kv_head, const ScoreRequest& request, Job& job) const {
  SoftmaxRequest r{.first_vector = job.n_vectors,
                   .n_ids = static_cast<int>(request.ids.size()),
                   .ids = request.ids.data(),
                   .first_block = first_packed_block(row),
                   .score = request.score};
  switch (a_.router.kind) {
    case Router::kSub:
      add_groups(row, request.q_head, job);
      break;
    case Router::kAntidiag:
      add_antidiagonals(row, kv_head, request.q_head, r, job);
      break;
    default:
      add_sampled(row, request.q_head, most_vectors(request), job);
  }
  r.n_vectors = job.n_vectors - r.first_vector;
  job.requests.push_back(r);
}

// The vector just packed sees what query `last_query` of the row sees.
void SoftmaxScorer::add_vector(const Row& row, int32_t last_query, Job& job) const {
  auto* limits = reinterpret_cast<int64_t*>(job.base + layout_.limits);
  limits[job.n_vectors++] = first_packed_block(row) * plan_.shape.columns_per_block +
                            ceil_div(row.keys_of(last_query), plan_.keys_per_column);
}

void SoftmaxScorer::add_sampled(const Row& row, int q_head, int samples, Job& job) const {
  const float factor = a_.scale * std::numbers::log2e_v<float>;
  const int D = static_cast<int>(a_.q.head_dim);
  // Evenly spaced in a whole row: one stride packs them all.
  const bool even = row.q_count % samples == 0;
  const int32_t step = row.q_count / samples;
  if (even)
    kernel_.pack_rows(a_.q.at(row.q_begin + step - 1, q_head), a_.q.dtype, step * a_.q.token_stride, samples,
                      D, factor, next_vector(job));
  int32_t previous = -1;
  for (int i = 0; i < samples; ++i) {
    const auto sample = static_cast<int32_t>(ceil_div(int64_t{i + 1} * row.q_count, samples) - 1);
    if (sample == previous) continue;
    previous = sample;
    if (!even)
      kernel_.pack_rows(a_.q.at(row.q_begin + sample, q_head), a_.q.dtype, a_.q.token_stride, 1, D, factor,
                        next_vector(job));
    add_vector(row, sample, job);
  }
}

void SoftmaxScorer::add_groups(const Row& row, int q_head, Job& job) const {
  const float factor = a_.scale * std::numbers::log2e_v<float>;
  const int D = static_cast<int>(a_.q.head_dim), step = a_.router.sub_q;
  auto* tokens = reinterpret_cast<float*>(job.base + layout_.tokens);
  float* means = tokens + int64_t{step} * D;
  pair_kernel_.group_means(a_.q.at(row.q_begin, q_head), a_.q.dtype, a_.q.token_stride, row.q_count, step, D,
                           tokens, means);
  kernel_.pack_rows(reinterpret_cast<const std::byte*>(means), DType::kF32, D,
                    static_cast<int>(ceil_div(row.q_count, step)), D, factor, next_vector(job));
  for (int32_t begin = 0; begin < row.q_count; begin += step)
    add_vector(row, std::min(begin + step, row.q_count) - 1, job);
}

void SoftmaxScorer::add_antidiagonals(const Row& row, int kv_head, int q_head, SoftmaxRequest& request,
                                      Job& job) const {
  const int s = a_.router.stride, D = static_cast<int>(a_.q.head_dim);
  const float factor = a_.scale * std::numbers::log2e_v<float> / static_cast<float>(s);
  const int64_t piece_bytes = plan_.vector_bytes / s;
  const BlockRun& run = a_.rows.runs[static_cast<size_t>(row.sequence)];
  // Keys that the row does not see count as zero, but the panels hold them: the group that the row's end cuts through
  // is scored apart.
  const bool cut = row.visible_keys % s != 0 && row.visible_keys < run.k_len;
  if (cut)
    request.patch_column = first_packed_block(row) * plan_.shape.columns_per_block + row.visible_keys / s;
  auto* patch = reinterpret_cast<float*>(job.base + layout_.patch);
  for (int32_t u = 0; u * s < row.q_count; ++u) {
    if (cut) patch[job.n_vectors] = factor * patched_score(row, kv_head, q_head, u);
    // Ascending: the tile may clear what lies behind the piece.
    for (int piece = 0; piece < s; ++piece) {
      const int32_t query = u * s + s - 1 - piece;
      std::byte* to = next_vector(job) + piece * piece_bytes;
      if (query < row.q_count)
        kernel_.pack_rows(a_.q.at(row.q_begin + query, q_head), a_.q.dtype, a_.q.token_stride, 1, D, factor,
                          to);
      else
        std::memset(to, 0, static_cast<size_t>(piece_bytes));
    }
    add_vector(row, std::min((u + 1) * s, row.q_count) - 1, job);
  }
}

// Query group u against the key group that the row's end cuts through, without the keys behind it; not yet scaled.
float SoftmaxScorer::patched_score(const Row& row, int kv_head, int q_head, int32_t u) const {
  const int s = a_.router.stride;
  const int64_t first = row.visible_keys / s * s;
  float sum = 0;
  for (int64_t key = first; key < row.visible_keys; ++key) {
    const int64_t query = u * s + s - 1 - (key - first);
    if (query >= row.q_count) continue;
    const std::byte* q = a_.q.at(row.q_begin + query, q_head);
    const std::byte* k = a_.k.at(row.k_begin + key, kv_head);
    for (int64_t c = 0; c < a_.q.head_dim; ++c)
      sum += load_f32(q, a_.q.dtype, c) * load_f32(k, a_.k.dtype, c);
  }
  return sum;
}

}  // namespace routerelay::cpu
