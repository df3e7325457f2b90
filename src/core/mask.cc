// SPDX-License-Identifier: Apache-2.0
#include "core/mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace routerelay {
namespace {

constexpr uint16_t kMinusInf = 0xfc00;

// The values of n keys as they fall: whether any hides, any shows, any is neither. No branch inside: it vectorises.
struct Seen {
  bool hides = false, shows = false, other = false;
};
Seen look(const uint16_t* values, int64_t n) {
  uint16_t hidden_any = 0, shown_any = 0, other = 0;
  for (int64_t j = 0; j < n; ++j) {
    const uint16_t hidden = static_cast<uint16_t>(values[j] == kMinusInf);
    const uint16_t shown = static_cast<uint16_t>(shows(values[j]));
    hidden_any |= hidden;
    shown_any |= shown;
    other |= static_cast<uint16_t>((hidden | shown) ^ 1);
  }
  return {hidden_any != 0, shown_any != 0, other != 0};
}

struct Place {
  int64_t query = 0, key = 0;
  uint16_t value = 0;
};

// Sights of one row. False at a value that is neither 0 nor -inf; `place` is then the first of them.
bool read_row(const Rows& rows, const Row& row, std::span<const Mask> masks, Sight* sights, Place& place) {
  for (int32_t block = 0; block < row.visible_blocks; ++block) {
    const int64_t first = int64_t{block} * rows.k_block;
    Seen block_seen;
    for (int32_t i = 0; i < row.q_count; ++i) {
      const int64_t end = std::min(first + rows.k_block, row.keys_of(i));
      const uint16_t* values = mask_of(row, rows, masks, row.q_begin + i);
      const Seen seen = look(values + first, end - first);
      if (seen.other) {
        const uint16_t* at = std::find_if(values + first, values + end,
                                          [](uint16_t v) { return v != kMinusInf && !shows(v); });
        place = {row.q_begin + i, at - values, *at};
        return false;
      }
      block_seen.shows |= seen.shows;
      block_seen.hides |= seen.hides;
    }
    sights[block] = !block_seen.shows ? Sight::kNone : block_seen.hides ? Sight::kSome : Sight::kAll;
  }
  return true;
}

}  // namespace

const uint16_t* mask_of(const Row& row, const Rows& rows, std::span<const Mask> masks, int64_t token) {
  const Mask& mask = masks[static_cast<size_t>(row.sequence)];
  return mask.data + (token - rows.runs[static_cast<size_t>(row.sequence)].q_begin) * mask.row_stride;
}

Status read_masks(std::span<const Mask> masks, const Rows& rows, Exec& exec, MaskedRows& out) {
  RR_ASSERT(masks.size() == rows.runs.size());
  out.masks = masks;
  out.offsets.assign(1, 0);
  for (const Row& row : rows.rows) out.offsets.push_back(out.offsets.back() + row.visible_blocks);
  out.sights.assign(static_cast<size_t>(out.offsets.back()), Sight::kNone);
  std::vector<Place> places(static_cast<size_t>(rows.size()));
  std::atomic<int64_t> bad_row{rows.size()};
  RR_TRY(exec.for_each(rows.size(), [&](int, int64_t r) {
    const auto at = static_cast<size_t>(r);
    if (read_row(rows, rows.rows[at], masks, out.sights.data() + out.offsets[at], places[at])) return;
    for (int64_t before = bad_row; r < before && !bad_row.compare_exchange_weak(before, r);) continue;
  }));
  if (bad_row < rows.size()) {
    const Place& place = places[static_cast<size_t>(bad_row.load())];
    return {Code::kUnsupported,
            fmt::format("mask: query {} has the f16 value {:#06x} at key {}; legal: 0 and -inf", place.query,
                        place.value, place.key)};
  }
  out.shown.clear();
  out.shown.offsets.push_back(0);
  for (int64_t r = 0; r < rows.size(); ++r) {
    const auto sights = out.of(r);
    for (size_t b = 0; b < sights.size(); ++b)
      if (sights[b] != Sight::kNone) out.shown.ids.push_back(static_cast<int32_t>(b));
    out.shown.offsets.push_back(static_cast<int64_t>(out.shown.ids.size()));
  }
  return {};
}

}  // namespace routerelay
