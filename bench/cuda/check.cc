// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/check.h"

#include <cuda_fp8.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/cuda/noise.h"
#include "core/convert.h"

namespace routerelay::bench {
namespace {

// As the device's bf16 tensors hold it.
float rounded_noise(uint32_t tensor, int64_t index) {
  std::byte bytes[2];
  store_f32(bytes, DType::kBF16, 0, noise(tensor, index));
  return load_f32(bytes, DType::kBF16, 0);
}

// Of a key or a value: what a cache holds of it is worth.
float cached_noise(const CudaCase& c, uint32_t tensor, int64_t index) {
  if (c.kv_dtype != DType::kE4M3) return rounded_noise(tensor, index);
  const float unit = e4m3_scale(index / c.head_dim % c.kv_heads);
  return static_cast<float>(__nv_fp8_e4m3(noise(tensor, index) / unit)) * unit;
}

struct Answer {
  std::vector<double> out;  // [head_dim]
  double lse_log2 = 0;
  double spread = 0;  // of an output element, over values of variance 1
};

// Of query i of a row.
Answer reference(const CudaProblem& problem, int64_t head, int64_t row_idx, int32_t i) {
  const CudaCase& c = problem.shape();
  const Row& row = problem.rows().rows[static_cast<size_t>(row_idx)];
  const int64_t kv_head = head / (c.q_heads / c.kv_heads), keys = row.keys_of(i);
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  const auto dim = static_cast<size_t>(c.head_dim);
  std::vector<double> query(dim);
  for (size_t d = 0; d < dim; ++d)
    query[d] = rounded_noise(kQueries,
                             ((row.q_begin + i) * c.q_heads + head) * c.head_dim + static_cast<int64_t>(d));
  Answer answer{std::vector<double>(dim, 0)};
  double total = 0, squares = 0;
  const auto visit = [&](int64_t block) {
    for (int64_t j = block * c.k_block; j < std::min((block + 1) * c.k_block, keys); ++j) {
      const int64_t at = ((row.k_begin + j) * c.kv_heads + kv_head) * c.head_dim;
      double dot = 0;
      for (size_t d = 0; d < dim; ++d) dot += query[d] * cached_noise(c, kKeys, at + static_cast<int64_t>(d));
      const double weight = std::exp(dot * scale);  // logits stay below 10 here: no maximum is needed
      total += weight;
      squares += weight * weight;
      for (size_t d = 0; d < dim; ++d)
        answer.out[d] += weight * cached_noise(c, kValues, at + static_cast<int64_t>(d));
    }
  };
  const Routes& routes = problem.routes();
  if (routes.full)
    for (int32_t block = 0; block < row.visible_blocks; ++block) visit(block);
  else
    for (const int32_t block : routes.lists[head / c.heads_per_list * problem.rows().size() + row_idx])
      visit(block);
  for (double& x : answer.out) x /= total;
  answer.lse_log2 = std::log2(total);
  answer.spread = std::sqrt(squares) / total;
  return answer;
}

Status check_query(const CudaProblem& problem, int64_t head, int64_t row_idx, int32_t i) {
  const CudaCase& c = problem.shape();
  const cuda::AttendArgs& args = problem.args();
  const Answer wanted = reference(problem, head, row_idx, i);
  const int64_t token = problem.rows().rows[static_cast<size_t>(row_idx)].q_begin + i;
  std::vector<std::byte> out(static_cast<size_t>(2 * c.head_dim));
  float lse_log2 = 0;
  RR_CUDA(cudaMemcpy(out.data(), args.out.at(token, head), out.size(), cudaMemcpyDeviceToHost));
  RR_CUDA(cudaMemcpy(&lse_log2, args.lse_log2 + head * problem.tokens() + token, sizeof lse_log2,
                     cudaMemcpyDeviceToHost));
  // Probabilities and the output are rounded to bf16, half a 2^-7th each; elements reach four spreads.
  // Scores of e4m3 keys are sums that keep 13 bits; a query that sees few of them shows it.
  const double allowed = wanted.spread / 32, lse_allowed = c.kv_dtype == DType::kE4M3 ? 4e-3 : 1e-3;
  double error = 0;
  for (int64_t d = 0; d < c.head_dim; ++d) {
    const double off = std::fabs(load_f32(out.data(), DType::kBF16, d) - wanted.out[static_cast<size_t>(d)]);
    if (off > error || std::isnan(off)) error = off;  // and NaN stays
  }
  const double lse_error = std::fabs(lse_log2 - wanted.lse_log2);
  if (error <= allowed && lse_error <= lse_allowed) return {};
  return {Code::kInternal,
          fmt::format("{}: head {}, token {}: output is off by {:.3g}, allowed {:.3g}; lse_log2 by {:.3g}, "
                      "allowed {:.3g}",
                      c.name, head, token, error, allowed, lse_error, lse_allowed)};
}

}  // namespace

Status check_last_run(const CudaProblem& problem) {
  const CudaCase& c = problem.shape();
  const auto last = static_cast<int32_t>(c.lengths.size()) - 1;
  std::set<int64_t> rows;
  for (const int32_t sequence : {0, last / 2, last}) {
    std::vector<int64_t> own;
    for (int64_t r = 0; r < problem.rows().size(); ++r)
      if (problem.rows().rows[static_cast<size_t>(r)].sequence == sequence) own.push_back(r);
    const size_t n = own.size();
    for (const size_t at : {size_t{0}, std::min<size_t>(1, n - 1), n / 2, n - 1}) rows.insert(own[at]);
  }
  for (const int64_t head : std::set<int64_t>{0, c.q_heads / 2, c.q_heads - 1})
    for (const int64_t row : rows) {
      const int32_t count = problem.rows().rows[static_cast<size_t>(row)].q_count;
      RR_TRY(check_query(problem, head, row, static_cast<int32_t>((37 * row + 11 * head) % count)));
    }
  return {};
}

}  // namespace routerelay::bench
