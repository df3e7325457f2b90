// SPDX-License-Identifier: Apache-2.0
// A problem's keys and values in pages on the device, in any order. What no sequence has there is NaN, and table
// entries that nobody may read are no pages.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/rng.h"
#include "core/rows.h"
#include "cuda/device_buffer.h"
#include "routerelay/cuda.hpp"
#include "support/problem.h"

namespace routerelay::cuda {

struct Paging {
  int page_size = 16;
  support::Layout layout = support::Layout::kTokenMajor;  // of a page; head-major: [heads, page, head_dim]
  uint64_t seed = 1;                                      // of the pages' order
};

class PagedCache {
 public:
  PagedCache(const std::vector<Sequence>& sequences, const Tensor& k, const Tensor& v, const Paging& paging)
      : paging_(paging), shape_(k) {
    int64_t n_pages = kSpare;
    for (const Sequence& s : sequences) {
      n_pages += pages_of(s);
      max_pages_ = std::max(max_pages_, pages_of(s) + kSpare);
    }
    shape_.tokens = n_pages * paging.page_size;
    set_strides();
    const auto bytes = bytes_of(k.dtype, n_pages * page_stride_);
    k_.emplace(bytes), v_.emplace(bytes);
    table_.emplace(static_cast<int64_t>(sequences.size()) * max_pages_ * int64_t{sizeof(int32_t)});
    place(sequences, k, v, paging.seed);
  }
  // Other pages for the same tokens, in the same memory.
  void place(const std::vector<Sequence>& sequences, const Tensor& k, const Tensor& v, uint64_t seed) {
    std::vector<int32_t> order(static_cast<size_t>(shape_.tokens / paging_.page_size));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    Philox random(seed, 80);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random.below(static_cast<uint32_t>(i))]);
    std::vector<int32_t> table;
    auto next = order.begin();
    for (const Sequence& s : sequences)
      for (int64_t i = 0; i < max_pages_; ++i)
        table.push_back(i < pages_of(s) ? *next++ : i % 2 == 0 ? -1 : 1 << 30);
    table_->upload(table.data(), table_->bytes());
    bring(sequences, k, table, *k_);
    bring(sequences, v, table, *v_);
  }
  void give(AttendArgs& args) const {
    args.k = args.v = shape_;
    args.k.data = k_->as<std::byte>(), args.v.data = v_->as<std::byte>();
    const bool side_by_side = page_stride_ == paging_.page_size * shape_.token_stride;
    args.pages = {table_->as<int32_t>(), max_pages_, paging_.page_size, side_by_side ? 0 : page_stride_};
  }

 private:
  static constexpr int64_t kSpare = 3;  // pages of nobody; entries behind a sequence's last page

  int64_t pages_of(const Sequence& s) const { return ceil_div(s.k_len, paging_.page_size); }
  void set_strides() {
    constexpr int64_t kAlign = 16;  // bytes
    const int64_t pad = paging_.layout == support::Layout::kPadded ? kAlign / bytes_of(shape_.dtype, 1) : 0,
                  page = paging_.page_size;
    shape_.head_stride = shape_.head_dim + pad;
    shape_.token_stride = shape_.heads * shape_.head_stride + 3 * pad;
    page_stride_ = page * shape_.token_stride + 5 * pad;
    if (paging_.layout != support::Layout::kHeadMajor) return;
    shape_.token_stride = shape_.head_dim;
    shape_.head_stride = page * shape_.head_dim;
    page_stride_ = shape_.heads * shape_.head_stride;
  }
  void bring(const std::vector<Sequence>& sequences, const Tensor& from, const std::vector<int32_t>& table,
             DeviceBuffer& to) const {
    std::vector<std::byte> bytes(static_cast<size_t>(to.bytes()), std::byte{0xff});
    const int64_t page = paging_.page_size;
    for (size_t s = 0; s < sequences.size(); ++s)
      for (int64_t j = 0; j < sequences[s].k_len; ++j) {
        const int64_t at = table[s * static_cast<size_t>(max_pages_) + static_cast<size_t>(j / page)];
        for (int64_t h = 0; h < from.heads; ++h)
          std::memcpy(bytes.data() + bytes_of(from.dtype, at * page_stride_ + j % page * shape_.token_stride +
                                                              h * shape_.head_stride),
                      from.at(sequences[s].k_begin + j, h),
                      static_cast<size_t>(bytes_of(from.dtype, from.head_dim)));
      }
    to.upload(bytes.data(), to.bytes());
  }

  Paging paging_;
  Tensor shape_;  // without data
  int64_t max_pages_ = 1, page_stride_ = 0;
  std::optional<DeviceBuffer> k_, v_, table_;
};

}  // namespace routerelay::cuda
