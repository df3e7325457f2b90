// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/check.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <set>

#include "bench/cuda/noise.h"
#include "core/convert.h"

namespace routerelay::bench {
namespace {

// As the device's tensors hold it: rounded to bf16.
float stored_noise(uint32_t tensor, int64_t index) {
  std::byte bytes[2];
  store_f32(bytes, DType::kBF16, 0, noise(tensor, index));
  return load_f32(bytes, DType::kBF16, 0);
}

class Reference {
 public:
  // Query i of row `row_idx`.
  Reference(const CudaProblem& problem, int64_t head, int64_t row_idx, int32_t i)
      : case_(problem.shape()),
        row_(problem.rows().rows[static_cast<size_t>(row_idx)]),
        kv_head_(head / (case_.q_heads / case_.kv_heads)),
        keys_(row_.keys_of(i)),
        out(static_cast<size_t>(case_.head_dim), 0) {
    const int64_t begin = ((row_.q_begin + i) * case_.q_heads + head) * case_.head_dim;
    for (int64_t d = 0; d < case_.head_dim; ++d) query_.push_back(stored_noise(kQueries, begin + d));
    const Routes& routes = problem.routes();
    if (routes.full)
      for (int32_t block = 0; block < row_.visible_blocks; ++block) visit(block);
    else
      for (const int32_t block : routes.lists[head * problem.rows().size() + row_idx]) visit(block);
    for (double& x : out) x /= total_;
    lse_log2 = std::log2(total_);
    spread = std::sqrt(squares_) / total_;
  }

 private:
  void visit(int64_t block) {
    const double scale = 1 / std::sqrt(static_cast<double>(case_.head_dim));
    for (int64_t j = block * case_.k_block; j < std::min((block + 1) * case_.k_block, keys_); ++j) {
      const int64_t at = ((row_.k_begin + j) * case_.kv_heads + kv_head_) * case_.head_dim;
      double dot = 0;
      for (int64_t d = 0; d < case_.head_dim; ++d)
        dot += query_[static_cast<size_t>(d)] * stored_noise(kKeys, at + d);
      const double weight = std::exp(dot * scale);  // logits stay below 10 here: no maximum is needed
      total_ += weight;
      squares_ += weight * weight;
      for (int64_t d = 0; d < case_.head_dim; ++d)
        out[static_cast<size_t>(d)] += weight * stored_noise(kValues, at + d);
    }
  }

  const CudaCase& case_;
  const Row& row_;
  const int64_t kv_head_, keys_;
  std::vector<double> query_;
  double total_ = 0, squares_ = 0;

 public:
  std::vector<double> out;
  double lse_log2 = 0;
  double spread = 0;  // of an output element, over values of variance 1
};

Status check_query(const CudaProblem& problem, int64_t head, int64_t row_idx, int32_t i) {
  const CudaCase& c = problem.shape();
  const cuda::AttendArgs& args = problem.args();
  const Reference wanted(problem, head, row_idx, i);
  const int64_t token = problem.rows().rows[static_cast<size_t>(row_idx)].q_begin + i;
  std::vector<std::byte> out(static_cast<size_t>(2 * c.head_dim));
  float lse_log2 = 0;
  RR_CUDA(cudaMemcpy(out.data(), args.out.at(token, head), out.size(), cudaMemcpyDeviceToHost));
  RR_CUDA(cudaMemcpy(&lse_log2, args.lse_log2 + head * problem.tokens() + token, sizeof lse_log2,
                     cudaMemcpyDeviceToHost));
  // Probabilities and the output are rounded to bf16, half a 2^-7th each; elements reach four spreads.
  const double allowed = wanted.spread / 32, lse_allowed = 1e-3;
  double error = 0;
  for (int64_t d = 0; d < c.head_dim; ++d) {
    const double off = std::fabs(load_f32(out.data(), DType::kBF16, d) - wanted.out[static_cast<size_t>(d)]);
    error = std::isnan(off) ? off : std::fmax(error, off);
    if (std::isnan(off)) break;
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
