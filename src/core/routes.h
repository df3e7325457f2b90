// SPDX-License-Identifier: Apache-2.0
// Lists of key blocks per (query head, row): routes, near blocks, candidates. CSR, ascending in a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "core/assert.h"

namespace routerelay {

// A legal list of a row that sees `n_blocks` blocks: ascending, each block once.
inline bool ascends_below(std::span<const int32_t> ids, int64_t n_blocks) {
  const bool ascends = std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
  return ids.empty() || (ascends && ids.front() >= 0 && ids.back() < n_blocks);
}

// List `q_head * n_rows + row` is ids[offsets[i] .. offsets[i + 1]).
struct BlockLists {
  std::vector<int64_t> offsets;  // [q_heads * n_rows + 1] i64
  std::vector<int32_t> ids;      // [total] i32

  int64_t size() const { return offsets.empty() ? 0 : static_cast<int64_t>(offsets.size()) - 1; }
  std::span<const int32_t> operator[](int64_t i) const {
    RR_ASSERT(i >= 0 && i < size());
    const auto begin = static_cast<size_t>(offsets[static_cast<size_t>(i)]);
    const auto end = static_cast<size_t>(offsets[static_cast<size_t>(i) + 1]);
    return {ids.data() + begin, end - begin};
  }
  void clear() {
    offsets.clear();
    ids.clear();
  }
};

// What attend visits. `full`: every visible block of every row, and no list to read.
struct Routes {
  bool full = false;
  BlockLists lists;
};

// Collects lists in any order from several threads, then lays them out as BlockLists.
class ListBuilder {
 public:
  ListBuilder(int64_t n_lists, int threads)
      : spans_(static_cast<size_t>(n_lists)), pools_(static_cast<size_t>(threads)) {}

  // Each list once; `thread` is the caller's index in its pool.
  void set(int64_t list, int thread, std::span<const int32_t> ids) {
    RR_ASSERT(list >= 0 && list < static_cast<int64_t>(spans_.size()));
    RR_ASSERT(thread >= 0 && thread < static_cast<int>(pools_.size()));
    RR_ASSERT(spans_[static_cast<size_t>(list)].count == 0);
    RR_ASSERT(ids.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()));
    auto& pool = pools_[static_cast<size_t>(thread)];
    spans_[static_cast<size_t>(list)] = {thread, static_cast<int32_t>(ids.size()), pool.size()};
    pool.insert(pool.end(), ids.begin(), ids.end());
  }
  BlockLists finish() const {
    BlockLists out;
    out.offsets.reserve(spans_.size() + 1);
    out.offsets.push_back(0);
    for (const Span& s : spans_) out.offsets.push_back(out.offsets.back() + s.count);
    out.ids.reserve(static_cast<size_t>(out.offsets.back()));
    for (const Span& s : spans_) {
      const auto from = pools_[static_cast<size_t>(s.thread)].begin() + static_cast<int64_t>(s.begin);
      out.ids.insert(out.ids.end(), from, from + s.count);
    }
    return out;
  }

 private:
  struct Span {
    int32_t thread = 0;
    int32_t count = 0;
    size_t begin = 0;
  };
  std::vector<Span> spans_;
  std::vector<std::vector<int32_t>> pools_;
};

}  // namespace routerelay
