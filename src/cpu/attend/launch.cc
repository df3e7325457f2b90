// SPDX-License-Identifier: Apache-2.0
// The one way into the kernels: packs the KV heads of a batch, all threads together, then hands out their rows.
#include <algorithm>
#include <new>
#include <numbers>

#include "core/assert.h"
#include "cpu/attend/attend.h"
#include "cpu/attend/plan.h"
#include "cpu/isa/tile.h"

namespace routerelay::cpu {
namespace {

// Packed panels of the batch at hand, laid out [panels] keys, [panels] values, [panels] finite.
struct Packed {
  Packed(std::byte* base, const Plan& plan)
      : keys(base),
        values(keys + plan.max_panels * plan.kernel->key_bytes),
        finite(reinterpret_cast<uint8_t*>(values + plan.max_panels * plan.kernel->value_bytes)) {
    RR_ASSERT(is_aligned(keys) && plan.kernel->key_bytes % kScratchAlign == 0 &&
              plan.kernel->value_bytes % kScratchAlign == 0);
    RR_ASSERT(reinterpret_cast<std::byte*>(finite) + plan.max_panels == base + plan.shared_bytes());
  }
  std::byte* keys;
  std::byte* values;
  uint8_t* finite;
};

// Consecutive panels of one unit, packed by one thread: big enough to be worth handing out.
struct PackItem {
  const Unit* unit;
  int64_t first_panel;
  int64_t n_panels;
};
constexpr int64_t kPanelsPerPack = 8;

// A row of one query head; or consecutive rows of several heads, all of which see every block.
struct RowItem {
  const Unit* unit;
  int64_t first_row;
  int64_t n_rows;
  int64_t q_head;
  int64_t n_heads;
  int64_t cost;  // blocks times rows times heads
};

class Launch {
 public:
  Launch(const AttendArgs& args, Exec& exec, const Plan& plan, std::byte* packed)
      : a_(args), exec_(exec), plan_(plan), packed_(packed, plan), group_(args.q.heads / args.k.heads) {}

  Status run(const Batch& batch) {
    visited_.assign(static_cast<size_t>(plan_.max_panels), 0);
    pack_items_.clear();
    row_items_.clear();
    for (int64_t i = 0; i < batch.n_units; ++i) {
      const Unit& unit = plan_.units[static_cast<size_t>(batch.first_unit + i)];
      RR_ASSERT(unit.panel_offset + unit.n_panels <= plan_.max_panels);
      add_rows(unit);
      for (int64_t p = 0; p < unit.n_panels; p += kPanelsPerPack)
        pack_items_.push_back({&unit, p, std::min(kPanelsPerPack, unit.n_panels - p)});
    }
    // Longest first: a long item started last would leave the other threads idle at the end.
    std::stable_sort(row_items_.begin(), row_items_.end(),
                     [](const RowItem& x, const RowItem& y) { return x.cost > y.cost; });
    RR_TRY(exec_.for_each(static_cast<int64_t>(pack_items_.size()),
                          [&](int, int64_t i) { pack(pack_items_[static_cast<size_t>(i)]); }));
    return exec_.for_each(static_cast<int64_t>(row_items_.size()), [&](int thread, int64_t i) {
      attend(row_items_[static_cast<size_t>(i)], exec_.workspace.thread(thread));
    });
  }

 private:
  int64_t panels_per_block() const { return a_.rows.k_block / kPanel; }
  bool sees_all(const Row& row) const { return a_.routes.full || row.dense; }
  std::span<const int32_t> list_of(int64_t q_head, int64_t row) const {
    return a_.routes.lists[q_head * a_.rows.size() + row];
  }

  // Items of the unit's rows, and marks on the panels that they visit: others are not packed.
  void add_rows(const Unit& unit) {
    const int64_t end = unit.first_row + unit.n_rows;
    for (int64_t r = unit.first_row, next = r; r < end; r = next) {
      const bool all = sees_all(row_at(r));
      for (next = r + 1; all && next < end && next - r < plan_.rows_per_item && continues(next);) ++next;
      if (all)
        add_full(unit, r, next - r);
      else
        add_routed(unit, r);
    }
  }

  // Whether row r goes on where the one before ends and sees every block too. An audit's sample has gaps.
  bool continues(int64_t r) const {
    const Row &before = row_at(r - 1), &row = row_at(r);
    return a_.masks == nullptr && sees_all(row) && row.q_begin == before.q_begin + before.q_count &&
           row.position == before.position + before.q_count;
  }

  void add_full(const Unit& unit, int64_t first_row, int64_t n_rows) {
    const Row& last = row_at(first_row + n_rows - 1);
    RR_ASSERT(ceil_div(last.visible_keys, kPanel) <= unit.n_panels);
    int64_t blocks = last.visible_blocks;
    if (a_.masks == nullptr) {
      std::fill_n(visited_.data() + unit.panel_offset, ceil_div(last.visible_keys, kPanel), uint8_t{1});
    } else {
      blocks = static_cast<int64_t>(a_.masks->shown[first_row].size());
      mark(unit, a_.masks->shown[first_row]);
    }
    const int64_t first_head = unit.kv_head * group_, heads = plan_.heads_per_item;
    for (int64_t h = first_head; h < first_head + group_; h += heads)
      row_items_.push_back({&unit, first_row, n_rows, h, heads, blocks * n_rows * heads});
  }

  void mark(const Unit& unit, std::span<const int32_t> blocks) {
    uint8_t* visited = visited_.data() + unit.panel_offset;
    for (const int32_t b : blocks)
      for (int64_t p = b * panels_per_block(); p < std::min((b + 1) * panels_per_block(), unit.n_panels); ++p)
        visited[p] = 1;
  }

  void add_routed(const Unit& unit, int64_t r) {
    const int64_t first_head = unit.kv_head * group_;
    for (int64_t h = first_head; h < first_head + group_; ++h) {
      const auto list = list_of(h, r);
      RR_ASSERT(ascends_below(list, row_at(r).visible_blocks));
      mark(unit, list);
      row_items_.push_back({&unit, r, 1, h, 1, static_cast<int64_t>(list.size())});
    }
  }

  void pack(const PackItem& item) {
    const Unit& unit = *item.unit;
    const BlockRun& run = run_of(unit);
    for (int64_t p = item.first_panel; p < item.first_panel + item.n_panels; ++p) {
      const int64_t slot = unit.panel_offset + p;
      if (!visited_[static_cast<size_t>(slot)]) continue;
      const int64_t token = run.k_begin + p * kPanel;
      RR_ASSERT(p * kPanel < run.k_len && run.k_begin + run.k_len <= a_.k.tokens);
      plan_.kernel->pack({.k = a_.k.at(token, unit.kv_head),
                          .v = a_.v.at(token, unit.kv_head),
                          .dtype = a_.k.dtype,
                          .k_stride = a_.k.token_stride,
                          .v_stride = a_.v.token_stride,
                          .n_keys = static_cast<int>(std::min<int64_t>(kPanel, run.k_len - p * kPanel)),
                          .keys = packed_.keys + slot * plan_.kernel->key_bytes,
                          .values = packed_.values + slot * plan_.kernel->value_bytes,
                          .finite = packed_.finite + slot});
    }
  }

  void attend(const RowItem& item, std::byte* scratch) const {
    const Unit& unit = *item.unit;
    const Row &first = row_at(item.first_row), &last = row_at(item.first_row + item.n_rows - 1);
    const auto q_count = static_cast<int>(last.q_begin + last.q_count - first.q_begin);
    RR_ASSERT(q_count * item.n_heads <= kMaxItemRows && is_aligned(scratch));
    RR_ASSERT(item.q_head / group_ == unit.kv_head &&
              (item.q_head + item.n_heads - 1) / group_ == unit.kv_head);
    RowJob job{.q = a_.q.at(first.q_begin, item.q_head),
               .q_dtype = a_.q.dtype,
               .q_stride = a_.q.token_stride,
               .q_head_stride = a_.q.head_stride,
               .q_count = q_count,
               .n_heads = static_cast<int>(item.n_heads),
               .factor = a_.scale * std::numbers::log2e_v<float>,
               .keys = packed_.keys + unit.panel_offset * plan_.kernel->key_bytes,
               .values = packed_.values + unit.panel_offset * plan_.kernel->value_bytes,
               .finite = packed_.finite + unit.panel_offset,
               .n_blocks = last.visible_blocks,
               .panels_per_block = static_cast<int>(panels_per_block()),
               .diagonal = first.diagonal,
               .position = first.position,
               .visible_keys = last.visible_keys,
               .out = a_.out.at(first.q_begin, item.q_head),
               .out_dtype = a_.out.dtype,
               .out_stride = a_.out.token_stride,
               .out_head_stride = a_.out.head_stride,
               .lse_head_stride = a_.q.tokens};
    if (a_.lse_log2 != nullptr) job.lse = a_.lse_log2 + item.q_head * a_.q.tokens + first.q_begin;
    if (!sees_all(first)) {
      visit(list_of(item.q_head, item.first_row), job);
    } else if (a_.masks != nullptr) {
      visit(a_.masks->shown[item.first_row], job);
    }
    if (a_.masks != nullptr) {
      job.mask = mask_of(first, a_.rows, a_.masks->masks, first.q_begin);
      job.mask_stride = a_.masks->masks[static_cast<size_t>(first.sequence)].row_stride;
      job.sights = a_.masks->of(item.first_row).data();
    }
    plan_.kernel->attend(job, scratch);
  }

  static void visit(std::span<const int32_t> blocks, RowJob& job) {
    job.blocks = blocks.data();
    job.n_blocks = static_cast<int64_t>(blocks.size());
  }

  const Row& row_at(int64_t row) const { return a_.rows.rows[static_cast<size_t>(row)]; }
  const BlockRun& run_of(const Unit& unit) const {
    return a_.rows.runs[static_cast<size_t>(row_at(unit.first_row).sequence)];
  }

  const AttendArgs& a_;
  Exec& exec_;
  const Plan& plan_;
  Packed packed_;
  int64_t group_;  // query heads per KV head
  std::vector<uint8_t> visited_;
  std::vector<PackItem> pack_items_;
  std::vector<RowItem> row_items_;
};

Status run(const AttendArgs& args, Exec& exec) {
  const Plan plan = choose({.rows = args.rows,
                            .isa = exec.isa,
                            .kv_dtype = args.k.dtype,
                            .head_dim = args.q.head_dim,
                            .q_heads = args.q.heads,
                            .kv_heads = args.k.heads,
                            .threads = exec.threads()});
  std::byte* packed = exec.workspace.shared(plan.shared_bytes());
  if (packed == nullptr || !exec.workspace.reserve_threads(exec.threads(), plan.kernel->scratch_bytes))
    return {Code::kOutOfMemory,
            "attend: " + std::to_string(plan.shared_bytes()) +
                " bytes for packed keys and values could not be had; free some or use fewer threads"};
  Launch launch(args, exec, plan, packed);
  for (const Batch& batch : plan.batches) RR_TRY(launch.run(batch));
  return {};
}

}  // namespace

Status attend(const AttendArgs& args, Exec& exec) {
  RR_TRY(supports(exec.isa, args.q.head_dim));
  try {
    return run(args, exec);
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory, "attend: memory for the list of work items could not be had"};
  }
}

}  // namespace routerelay::cpu
