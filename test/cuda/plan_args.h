// SPDX-License-Identifier: Apache-2.0
// Arguments that plan_attend accepts, for tests to spoil. Their addresses are judged, never followed.
#pragma once

#include <cstdint>

#include "routerelay/cuda.hpp"

namespace routerelay::cuda {

template <class T>
inline T* address(uintptr_t value) {
  return reinterpret_cast<T*>(value);  // NOLINT(performance-no-int-to-ptr)
}

// 300 queries of 8 heads at the end of 1000 keys of 2.
inline AttendArgs legal_args(int64_t head_dim = 128) {
  AttendArgs a;
  a.q = contiguous(address<const void>(0x1000), DType::kBF16, 300, 8, head_dim);
  a.k = contiguous(address<const void>(0x2000), DType::kBF16, 1000, 2, head_dim);
  a.v = contiguous(address<const void>(0x3000), DType::kBF16, 1000, 2, head_dim);
  a.out = contiguous(address<void>(0x4000), DType::kBF16, 300, 8, head_dim);
  return a;
}

// The same, its keys and values in e4m3.
inline AttendArgs e4m3_args() {
  AttendArgs a = legal_args();
  a.k.dtype = a.v.dtype = DType::kE4M3;
  a.k_scale = address<const float>(0x6000), a.v_scale = address<const float>(0x7000);
  return a;
}

// legal_args(), its 1000 keys in the front of 16 pages of 64, of the 20 that there are.
inline AttendArgs paged_args() {
  AttendArgs a = legal_args();
  a.k.tokens = a.v.tokens = 20 * 64;
  a.pages = {address<const int32_t>(0x5000), 16, 64, 0};
  a.sequence = {0, 300, 0, 1000, 700};
  return a;
}

// All four tensors at once; they must not differ.
inline void set_head_dim(AttendArgs& a, int64_t head_dim) {
  a.q.head_dim = a.k.head_dim = a.v.head_dim = a.out.head_dim = head_dim;
}

}  // namespace routerelay::cuda
