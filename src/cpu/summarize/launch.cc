// SPDX-License-Identifier: Apache-2.0
// Hands blocks of keys to the ISA's kernel, a few at a time per thread.
#include <algorithm>
#include <string>

#include "core/assert.h"
#include "cpu/summarize/kernel.h"
#include "cpu/summarize/summarize.h"

namespace routerelay::cpu {
namespace {

// Blocks per work item: some 100 microseconds of reading, so that handing out items costs nothing.
constexpr int64_t kBlocksPerItem = 8;

SummarizeKernel kernel_of(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return summarize_scalar;
    case Isa::kAvx2:
      return summarize_avx2;
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
    case Isa::kAmxBf16:
      break;
  }
  return summarize_avx512;
}

// Element 0 of vector `at` of an array of the Summary, or null when nobody asked for the array.
template <class T>
T* vector_at(std::vector<T>& array, int64_t at, int64_t head_dim) {
  return array.empty() ? nullptr : array.data() + at * head_dim;
}

void summarize_block(const SummarizeArgs& a, SummarizeKernel kernel, int64_t kv_head, const BlockRun& run,
                     int64_t block, std::byte* scratch) {
  Summary& s = a.summary;
  const int64_t token = run.k_begin + block * a.rows.k_block, dim = a.k.head_dim;
  const int64_t at = kv_head * s.n_blocks + run.first_block + block;
  SummarizeJob job{
      .k = a.k.at(token, kv_head),
      .dtype = a.k.dtype,
      .k_stride = a.k.token_stride,
      .v_stride = a.v.token_stride,
      .n_keys = static_cast<int>(std::min<int64_t>(a.rows.k_block, run.k_len - block * a.rows.k_block)),
      .head_dim = static_cast<int>(dim),
      .sub_k = a.needs.sub_k,
      .mean = vector_at(s.mean, at, dim),
      .box_min = vector_at(s.box_min, at, dim),
      .box_max = vector_at(s.box_max, at, dim),
      .radius = vector_at(s.radius, at, 1),
      .value_mean = vector_at(s.value_mean, at, dim),
      .sub_means = vector_at(s.sub_means, at * s.subs_per_block, dim),
      .scratch = reinterpret_cast<float*>(scratch)};
  if (a.needs.value_mean) job.v = a.v.at(token, kv_head);
  RR_ASSERT(job.n_keys >= 1 && at < s.kv_heads * s.n_blocks);
  RR_ASSERT(job.sub_means == nullptr || ceil_div(job.n_keys, job.sub_k) <= s.subs_per_block);
  // The radius is taken about the mean, wanted or not.
  if (job.radius != nullptr && job.mean == nullptr) job.mean = job.scratch + (a.rows.k_block + 1) * dim;
  kernel(job);
}

}  // namespace

Status summarize(const SummarizeArgs& a, Exec& exec) {
  a.summary.resize(a.needs, a.rows.n_blocks, a.k.heads, a.k.head_dim, a.rows.k_block);
  if (!a.needs.any()) return {};
  const int64_t scratch_bytes = 4 * (a.rows.k_block + 2) * a.k.head_dim;
  if (!exec.workspace.reserve_threads(exec.threads(), scratch_bytes))
    return {Code::kOutOfMemory, "summarize: " + std::to_string(exec.threads() * scratch_bytes) +
                                    " bytes of scratch could not be had; use fewer threads"};
  const SummarizeKernel kernel = kernel_of(exec.isa);
  for (const BlockRun& run : a.rows.runs) {
    const int64_t items = ceil_div(run.n_blocks, kBlocksPerItem);
    RR_TRY(exec.for_each(items * a.k.heads, [&](int thread, int64_t i) {
      const int64_t kv_head = i / items, first = i % items * kBlocksPerItem;
      for (int64_t b = first; b < std::min(first + kBlocksPerItem, run.n_blocks); ++b)
        summarize_block(a, kernel, kv_head, run, b, exec.workspace.thread(thread));
    }));
  }
  return {};
}

}  // namespace routerelay::cpu
