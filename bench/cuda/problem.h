// SPDX-License-Identifier: Apache-2.0
// A case of bench cuda-attend on the current device: its tensors, random routes and pages, ready to be called.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "bench/cuda/cases.h"
#include "core/routes.h"
#include "core/rows.h"
#include "cuda/isa/device.h"
#include "routerelay/cuda.hpp"

namespace routerelay::bench {

enum : uint32_t { kQueries, kKeys, kValues };  // tensors of noise()

// Device memory, freed with it. Bytes that nobody wrote are 0xff: NaN in bf16, no page in a table.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }

  Status make(int64_t bytes);
  template <class T>
  Status make_copy(const std::vector<T>& from);
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

class CudaProblem {
 public:
  explicit CudaProblem(const CudaCase& c);

  Status bring_to_device();
  // Enqueued on the default stream.
  Status run() const { return cuda::attend(args_, workspace_.as<std::byte>(), workspace_bytes_, nullptr); }

  const CudaCase& shape() const { return case_; }
  const Rows& rows() const { return rows_; }
  const Routes& routes() const { return routes_; }
  const std::vector<Sequence>& sequences() const { return sequences_; }
  const cuda::AttendArgs& args() const { return args_; }
  int64_t tokens() const { return tokens_; }
  // Of both products: whole blocks where there is a list, the visible pairs where there is none.
  double flops() const;
  double density() const;  // visited over visible pairs

 private:
  double visible_pairs() const;
  void pick(int64_t head, const Row& row, int32_t wanted);
  void make_routes();
  Status bring_tensors();
  Status bring_scales();
  Status bring_pages(std::vector<int32_t>& slots);
  Status bring_lists();

  const CudaCase& case_;
  int64_t tokens_ = 0;
  std::vector<Sequence> sequences_;  // an offset of k_len where every query sees every key
  Rows rows_;
  Routes routes_;
  cuda::AttendArgs args_;
  int64_t workspace_bytes_ = 0;
  DeviceMemory q_, k_, v_, kv_scale_, out_, lse_log2_, row_offsets_, picked_, sequence_array_, page_table_,
      workspace_;
};

template <class T>
Status DeviceMemory::make_copy(const std::vector<T>& from) {
  const auto bytes = static_cast<int64_t>(from.size() * sizeof(T));
  RR_TRY(make(bytes));
  RR_CUDA(cudaMemcpy(data_, from.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  return {};
}

}  // namespace routerelay::bench
