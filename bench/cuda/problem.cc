// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/cuda/fill.h"
#include "bench/cuda/noise.h"
#include "core/rng.h"

namespace routerelay::bench {

Status DeviceMemory::make(int64_t bytes) {
  constexpr int kUnwritten = 0xff;
  RR_CUDA(cudaMalloc(&data_, static_cast<size_t>(bytes)));
  RR_CUDA(cudaMemset(data_, kUnwritten, static_cast<size_t>(bytes)));
  return {};
}

CudaProblem::CudaProblem(const CudaCase& c) : case_(c) {
  for (const int64_t length : c.lengths) {
    sequences_.push_back({tokens_, length, tokens_, length, c.causal ? 0 : length});
    tokens_ += length;
  }
  rows_ = make_rows(sequences_, c.q_block, c.k_block);
  routes_.full = c.dense();
  if (!routes_.full) make_routes();
}

double CudaProblem::visible_pairs() const {
  double pairs = 0;
  for (const int64_t length : case_.lengths) {
    const auto n = static_cast<double>(length);
    pairs += case_.causal ? n * (n + 1) / 2 : n * n;
  }
  return pairs * static_cast<double>(case_.q_heads);
}

double CudaProblem::flops() const {
  const double block = static_cast<double>(case_.q_block) * case_.k_block;
  const double pairs = routes_.full
                           ? visible_pairs()
                           : static_cast<double>(routes_.lists.ids.size()) * block * case_.heads_per_list;
  return 4 * static_cast<double>(case_.head_dim) * pairs;
}

double CudaProblem::density() const {
  return flops() / (4 * static_cast<double>(case_.head_dim) * visible_pairs());
}

// The sink, the blocks of the row's own tokens, and of all others a random choice.
void CudaProblem::pick(int64_t head, const Row& row, int32_t wanted) {
  const int64_t begin = row.q_begin - sequences_[static_cast<size_t>(row.sequence)].q_begin;
  const auto own_begin = static_cast<int32_t>(begin / case_.k_block);
  const auto own_end = static_cast<int32_t>(ceil_div(begin + row.q_count, case_.k_block));
  const auto forced = [&](int32_t block) { return block == 0 || (block >= own_begin && block < own_end); };
  int32_t n_forced = own_end - own_begin + (own_begin > 0 ? 1 : 0);
  int32_t others = row.visible_blocks - n_forced;
  int32_t left = std::clamp(wanted - n_forced, 0, others);
  Philox random(static_cast<uint64_t>(head), static_cast<uint64_t>(row.q_begin));
  std::vector<int32_t>& ids = routes_.lists.ids;
  for (int32_t block = 0; block < row.visible_blocks; ++block) {
    if (forced(block)) {
      ids.push_back(block);
      continue;
    }
    // Selection sampling: each of the blocks to come with the chance that fills the wish exactly.
    if (random.below(static_cast<uint32_t>(others--)) >= static_cast<uint32_t>(left)) continue;
    ids.push_back(block);
    --left;
  }
  routes_.lists.offsets.push_back(static_cast<int64_t>(ids.size()));
}

void CudaProblem::make_routes() {
  routes_.lists.offsets.push_back(0);
  const int64_t heads = case_.q_heads / case_.heads_per_list;
  for (int64_t head = 0; head < heads; ++head)
    for (const Row& row : rows_.rows) {
      const bool last = head == heads - 1 && &row == &rows_.rows.back();
      const int32_t wanted =
          case_.top > 0 ? case_.top : static_cast<int32_t>(std::lround(case_.density * row.visible_blocks));
      pick(head, row, last ? wanted * case_.longest : wanted);
    }
}

Status CudaProblem::bring_to_device() {
  args_.q_block = case_.q_block, args_.k_block = case_.k_block, args_.causal = case_.causal;
  RR_TRY(bring_tensors());
  if (!routes_.full) RR_TRY(bring_lists());
  std::vector<Sequence> sequences = sequences_;
  for (Sequence& s : sequences) s.q_offset = 0;
  args_.sequence = sequences[0];
  if (sequences.size() > 1 || case_.page > 0) {
    RR_TRY(sequence_array_.make_copy(sequences));
    args_.sequences = sequence_array_.as<Sequence>();
    args_.n_sequences = static_cast<int64_t>(sequences.size());
    args_.n_rows = rows_.size();
  }
  const Result<int64_t> bytes = cuda::attend_workspace_bytes(args_);
  RR_TRY(bytes.status());
  workspace_bytes_ = bytes.value();
  return workspace_.make(workspace_bytes_);
}

Status CudaProblem::bring_tensors() {
  int64_t k_tokens = tokens_;
  DeviceMemory slots_there;
  if (case_.page > 0) {
    std::vector<int32_t> slots;
    RR_TRY(bring_pages(slots));
    k_tokens = *std::ranges::max_element(slots) / case_.page * case_.page + case_.page;
    RR_TRY(slots_there.make_copy(slots));
  }
  const int64_t q_elements = tokens_ * case_.q_heads * case_.head_dim,
                k_elements = k_tokens * case_.kv_heads * case_.head_dim;
  RR_TRY(q_.make(bytes_of(DType::kBF16, q_elements)));
  RR_TRY(out_.make(bytes_of(DType::kBF16, q_elements)));
  RR_TRY(k_.make(bytes_of(case_.kv_dtype, k_elements)));
  RR_TRY(v_.make(bytes_of(case_.kv_dtype, k_elements)));
  RR_TRY(lse_log2_.make(4 * tokens_ * case_.q_heads));
  args_.q = contiguous(q_.as<const void>(), DType::kBF16, tokens_, case_.q_heads, case_.head_dim);
  args_.k = contiguous(k_.as<const void>(), case_.kv_dtype, k_tokens, case_.kv_heads, case_.head_dim);
  args_.v = contiguous(v_.as<const void>(), case_.kv_dtype, k_tokens, case_.kv_heads, case_.head_dim);
  args_.out = contiguous(out_.as<void>(), DType::kBF16, tokens_, case_.q_heads, case_.head_dim);
  args_.lse_log2 = lse_log2_.as<float>();
  const auto* slots = slots_there.as<const int32_t>();
  RR_CUDA(fill_with_noise(args_.q, tokens_, nullptr, kQueries));
  RR_CUDA(fill_with_noise(args_.k, tokens_, slots, kKeys));
  RR_CUDA(fill_with_noise(args_.v, tokens_, slots, kValues));
  RR_CUDA(cudaDeviceSynchronize());
  return case_.kv_dtype == DType::kE4M3 ? bring_scales() : Status{};
}

Status CudaProblem::bring_scales() {
  std::vector<float> scales;
  for (int64_t head = 0; head < case_.kv_heads; ++head) scales.push_back(e4m3_scale(head));
  RR_TRY(kv_scale_.make_copy(scales));
  args_.k_scale = args_.v_scale = kv_scale_.as<const float>();
  return {};
}

// Shuffled; `slots`: where each token of k and v lies. What a last page holds past its sequence's end stays NaN.
Status CudaProblem::bring_pages(std::vector<int32_t>& slots) {
  int64_t n_pages = 0, max_pages = 0;
  for (const int64_t length : case_.lengths) {
    n_pages += ceil_div(length, case_.page);
    max_pages = std::max(max_pages, ceil_div(length, case_.page));
  }
  std::vector<int32_t> order(static_cast<size_t>(n_pages));
  std::iota(order.begin(), order.end(), 0);
  Philox random(0, 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random.below(static_cast<uint32_t>(i))]);
  std::vector<int32_t> table(case_.lengths.size() * static_cast<size_t>(max_pages), -1);
  auto next = order.begin();
  for (size_t s = 0; s < case_.lengths.size(); ++s)
    for (int64_t t = 0; t < case_.lengths[s]; ++t) {
      int32_t& page = table[s * static_cast<size_t>(max_pages) + static_cast<size_t>(t / case_.page)];
      if (t % case_.page == 0) page = *next++;
      slots.push_back(page * case_.page + static_cast<int32_t>(t % case_.page));
    }
  RR_TRY(page_table_.make_copy(table));
  args_.pages = {page_table_.as<const int32_t>(), max_pages, case_.page, 0};
  return {};
}

Status CudaProblem::bring_lists() {
  RR_TRY(row_offsets_.make_copy(routes_.lists.offsets));
  RR_TRY(picked_.make_copy(routes_.lists.ids));
  args_.routes = {row_offsets_.as<const int64_t>(), picked_.as<const int32_t>(),
                  case_.q_heads / case_.heads_per_list};
  return {};
}

}  // namespace routerelay::bench
