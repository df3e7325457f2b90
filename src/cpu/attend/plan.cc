// SPDX-License-Identifier: Apache-2.0
#include "cpu/attend/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/assert.h"
#include "cpu/isa/tile.h"

namespace routerelay::cpu {
namespace {

const Kernel* find(Isa isa, DType kv_dtype, int64_t head_dim) {
  switch (isa_for(isa, kv_dtype)) {
    case Isa::kScalar:
      return find_scalar(head_dim);
    case Isa::kAvx2:
      return find_avx2(head_dim);
    case Isa::kAvx512:
      return find_avx512(head_dim);
    case Isa::kAvx512Bf16:
      return find_avx512bf16(head_dim);
    case Isa::kAmxBf16:
      return find_amx(head_dim, kv_dtype);
  }
  return nullptr;
}

std::vector<Unit> units_of(const PlanArgs& a) {
  std::vector<Unit> units;
  const auto& rows = a.rows.rows;
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    int64_t visible_keys = 0;
    for (end = begin; end < rows.size() && rows[end].sequence == rows[begin].sequence; ++end)
      visible_keys = std::max(visible_keys, rows[end].visible_keys);
    for (int64_t h = 0; h < a.kv_heads; ++h)
      units.push_back({.first_row = static_cast<int64_t>(begin),
                       .n_rows = static_cast<int64_t>(end - begin),
                       .kv_head = h,
                       .n_panels = ceil_div(visible_keys, kPanel)});
  }
  return units;
}

// Fills batches greedily, in order, up to one KV head of the longest sequence per thread.
void batch_units(int threads, Plan& plan) {
  int64_t longest = 0;
  for (const Unit& u : plan.units) longest = std::max(longest, u.n_panels);
  const int64_t limit = longest * threads;
  int64_t used = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(plan.units.size()); ++i) {
    Unit& unit = plan.units[static_cast<size_t>(i)];
    if (plan.batches.empty() || used + unit.n_panels > limit) {
      plan.batches.push_back({.first_unit = i});
      used = 0;
    }
    unit.panel_offset = used;
    used += unit.n_panels;
    ++plan.batches.back().n_units;
    RR_ASSERT(used <= limit);
    plan.max_panels = std::max(plan.max_panels, used);
  }
}

// A pass over the keys serves several query heads of a group, then several rows, as long as every thread still finds
// plenty of items.
void share_passes(const PlanArgs& a, Plan& plan) {
  constexpr int64_t kItemsPerThread = 8;  // the last item to finish then idles the others for a few per cent
  const int64_t group = a.q_heads / a.kv_heads;
  int64_t units_at_once = 1, rows = 0;
  for (const Batch& b : plan.batches) units_at_once = std::max(units_at_once, b.n_units);
  for (const Unit& u : plan.units) rows = std::max(rows, u.n_rows);
  const auto fits = [&](int64_t heads, int64_t n) {
    return heads * n * a.rows.q_block <= kMaxItemRows &&
           rows / n * units_at_once * (group / heads) >= kItemsPerThread * a.threads;
  };
  for (int heads = 1; heads <= group; ++heads)
    if (group % heads == 0 && fits(heads, 1)) plan.heads_per_item = heads;
  while (fits(plan.heads_per_item, 2 * plan.rows_per_item)) plan.rows_per_item *= 2;
}

}  // namespace

int64_t Plan::shared_bytes() const {
  // + 1 byte per panel: whether its values are finite.
  return max_panels * (kernel->key_bytes + kernel->value_bytes + 1);
}

Isa isa_for(Isa isa, DType kv_dtype) {
  // AMX has a second part for what bf16 cannot hold of f16 and q8_0; of f32 it would lose a third of the bits.
  const bool kept = isa == Isa::kAmxBf16 ? kv_dtype != DType::kF32 : kv_dtype == DType::kBF16;
  const bool bf16_tile = isa == Isa::kAvx512Bf16 || isa == Isa::kAmxBf16;
  return bf16_tile && !kept ? Isa::kAvx512 : isa;
}

Status supports(Isa isa, int64_t head_dim) {
  if (find(isa, DType::kBF16, head_dim) != nullptr) return {};
  std::vector<int> legal;
#define RR_ATTEND(name, D) \
  if (Isa::name == isa) legal.push_back(D);
#include "cpu/attend/configs.def"
#undef RR_ATTEND
  return {Code::kUnsupported,
          fmt::format("attend: head_dim is {}; isa {} has {}; pad the head or add a line to "
                      "src/cpu/attend/configs.def",
                      head_dim, name_of(isa), fmt::join(legal, ", "))};
}

Plan choose(const PlanArgs& args) {
  Plan plan;
  plan.kernel = find(args.isa, args.kv_dtype, args.head_dim);
  RR_ASSERT(plan.kernel != nullptr && args.threads >= 1 && args.q_heads % args.kv_heads == 0);
  plan.units = units_of(args);
  batch_units(args.threads, plan);
  share_passes(args, plan);
  return plan;
}

int64_t workspace_bytes(const PlanArgs& args) {
  const Plan plan = choose(args);
  return plan.shared_bytes() + args.threads * plan.kernel->scratch_bytes;
}

}  // namespace routerelay::cpu
