// SPDX-License-Identifier: Apache-2.0
// One call of attend on the device: a problem's tensors, sequences and routes brought there, its results brought back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/attend/launch.h"
#include "cuda/device_buffer.h"
#include "cuda/e4m3_tensor.h"
#include "cuda/paged_cache.h"
#include "routerelay/cuda.hpp"
#include "support/problem.h"
#include "support/routes.h"

namespace routerelay::cuda {

struct CallOptions {
  bool causal = true;  // false: the problem's offsets must show every key; the device is not told of them
  bool lse = true;
  int64_t spare_rows = 0;             // of a head, beyond those of the sequences
  std::optional<Arch> arch;           // whose kernel; none: as the device chooses
  int multiprocessors = 0;            // with `arch`; 0: all
  bool shares_tiles = true;           // with `arch`: heads into one tile, where they may be
  std::optional<Paging> paging = {};  // none: keys and values as the problem has them
  // That the device gets lists for; 0: every query head. Of routes for more heads, those of the first of each group.
  int64_t list_heads = 0;
  bool e4m3 = false;  // keys and values, with a scale a head; the problem's are rounded to theirs
};

class DeviceAttend {
 public:
  DeviceAttend(support::Problem& p, const Routes& routes, CallOptions options = {})
      : options_(options),
        q_heads_(p.q.view.heads),
        n_lists_(p.rows.size()),
        n_rows_(p.rows.size() + options.spare_rows),
        list_heads_(options.list_heads == 0 ? q_heads_ : options.list_heads),
        quantised_(options.e4m3 ? std::make_unique<Quantised>(p) : nullptr),
        q_(p.q.view.data, extent(p.q.view)),
        k_(keys(p).data, extent(keys(p))),
        v_(values(p).data, extent(values(p))),
        out_(p.out.view.data, extent(p.out.view)),
        lse_(q_heads_ * p.q.view.tokens * int64_t{sizeof(float)}) {
    args.q = moved(p.q.view, q_);
    args.k = moved(keys(p), k_);
    args.v = moved(values(p), v_);
    if (quantised_)
      args.k_scale = quantised_->k_scale.as<float>(), args.v_scale = quantised_->v_scale.as<float>();
    const Tensor out = p.out.view;
    args.out = {out_.as<std::byte>(), out.dtype,        out.tokens,     out.heads,
                out.head_dim,         out.token_stride, out.head_stride};
    if (options.lse) args.lse_log2 = lse_.as<float>();
    args.q_block = p.rows.q_block, args.k_block = p.rows.k_block;
    args.causal = options.causal;
    args.scale = p.scale;
    if (options.paging) cache_.emplace(p.sequences, keys(p), values(p), *options.paging).give(args);
    set_sequences(p);
    if (!routes.full) set_routes(p, routes);
    const Result<int64_t> bytes = attend_workspace_bytes(args);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    workspace_.emplace(bytes.ok() ? bytes.value() : 256);
  }

  Status enqueue(cudaStream_t stream = nullptr) const {
    const auto workspace = workspace_->as<std::byte>();
    if (!options_.arch) return attend(args, workspace, workspace_->bytes(), stream);
    return attend_with({*options_.arch, options_.multiprocessors, options_.shares_tiles}, args, workspace,
                       workspace_->bytes(), stream);
  }
  // Waits for the device. Nothing may have been written behind a result or behind the workspace.
  void fetch(support::Problem& p) const {
    must(cudaDeviceSynchronize());
    EXPECT_TRUE(out_.download(p.out.mutable_view.data)) << "written behind out";
    EXPECT_TRUE(lse_.download(p.lse_log2.data())) << "written behind lse_log2";
    std::vector<std::byte> work(static_cast<size_t>(workspace_->bytes()));
    EXPECT_TRUE(workspace_->download(work.data())) << "written behind the workspace";
  }
  // As a caller would whose routes change between replays of a graph: the same memory, new lists.
  void set_routes(const support::Problem& p, const Routes& routes) {
    const int64_t heads_per_list = routes.lists.size() / n_lists_ / list_heads_;
    std::vector<int64_t> offsets = {0};
    std::vector<int32_t> ids;
    for (int64_t head = 0; head < list_heads_; ++head)
      for (int64_t row = 0; row < n_rows_; ++row) {
        if (row < n_lists_) {
          const auto list = routes.lists[head * heads_per_list * n_lists_ + row];
          ids.insert(ids.end(), list.begin(), list.end());
        }
        offsets.push_back(static_cast<int64_t>(ids.size()));
      }
    if (!picked_) {
      const auto all = support::listed_full_routes(p.rows, q_heads_).lists.ids.size();
      const auto most = std::max(all, routes.lists.ids.size());
      row_offsets_.emplace(static_cast<int64_t>(offsets.size() * sizeof(int64_t)));
      picked_.emplace(static_cast<int64_t>((most + 1) * sizeof(int32_t)));
      args.routes = {row_offsets_->as<int64_t>(), picked_->as<int32_t>(), options_.list_heads};
    }
    row_offsets_->upload(offsets.data(), row_offsets_->bytes());
    picked_->poison();
    picked_->upload(ids.data(), static_cast<int64_t>(ids.size() * sizeof(int32_t)));
  }
  // And whose cache moves between them.
  void move_pages(const support::Problem& p, uint64_t seed) {
    cache_->place(p.sequences, keys(p), values(p), seed);
  }
  void poison_results(const support::Problem& p) {
    out_.upload(p.out.view.data, out_.bytes());
    lse_.poison();
    workspace_->poison();
  }

  AttendArgs args;

  // Of a head's e4m3 keys, and of its values.
  float k_scale(int64_t head) const { return quantised_->k.scale[static_cast<size_t>(head)]; }
  float v_scale(int64_t head) const { return quantised_->v.scale[static_cast<size_t>(head)]; }

 private:
  struct Quantised {
    explicit Quantised(support::Problem& p)
        : k(p.k),
          v(p.v),
          k_scale(k.scale.data(), static_cast<int64_t>(k.scale.size() * sizeof(float))),
          v_scale(v.scale.data(), static_cast<int64_t>(v.scale.size() * sizeof(float))) {}
    E4M3Tensor k, v;
    DeviceBuffer k_scale, v_scale;
  };

  // As the device gets them.
  const Tensor& keys(const support::Problem& p) const { return quantised_ ? quantised_->k.view : p.k.view; }
  const Tensor& values(const support::Problem& p) const { return quantised_ ? quantised_->v.view : p.v.view; }
  static int64_t extent(const Tensor& t) {
    return bytes_of(t.dtype, (t.tokens - 1) * t.token_stride + (t.heads - 1) * t.head_stride + t.head_dim);
  }
  static Tensor moved(Tensor t, const DeviceBuffer& buffer) {
    t.data = buffer.as<std::byte>();
    return t;
  }
  // One sequence goes by value, several by a device array.
  void set_sequences(const support::Problem& p) {
    std::vector<Sequence> sequences = p.sequences;
    for (Sequence& s : sequences) {
      if (!options_.causal) s.q_offset = 0;
      if (options_.paging) s.k_begin = kNowhere;
    }
    if (sequences.size() == 1 && options_.spare_rows == 0) {
      args.sequence = sequences[0];
      return;
    }
    sequences_.emplace(sequences.data(), static_cast<int64_t>(sequences.size() * sizeof(Sequence)));
    args.sequences = sequences_->as<Sequence>();
    args.n_sequences = static_cast<int64_t>(sequences.size());
    args.n_rows = n_rows_;
  }

  static constexpr int64_t kNowhere = 0x7ffffff0;  // of keys in pages, a begin that nobody may read

  CallOptions options_;
  int64_t q_heads_, n_lists_, n_rows_, list_heads_;
  std::unique_ptr<Quantised> quantised_;
  DeviceBuffer q_, k_, v_, out_, lse_;
  std::optional<PagedCache> cache_;
  std::optional<DeviceBuffer> sequences_, row_offsets_, picked_, workspace_;
};

}  // namespace routerelay::cuda
