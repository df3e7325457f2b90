// SPDX-License-Identifier: Apache-2.0
// The shapes and routes that bench cuda-attend times. cases.py has them too, with what peers set as bars; a test keeps
// the two alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "routerelay/tensor.hpp"

namespace routerelay::bench {

// Prefill of whole sequences, queries in bf16. Without `density` and `top` it is dense: no list to read.
struct CudaCase {
  const char* name = "";
  int q_block = 128, k_block = 128;
  std::vector<int64_t> lengths = {32768};  // tokens of each sequence
  int64_t q_heads = 32, kv_heads = 8, head_dim = 128;
  double density = 0;      // picked blocks of a row over those it may see
  int top = 0;             // or: picked blocks of a row
  int longest = 1;         // the very last row picks so many times what the others pick
  int heads_per_list = 1;  // neighbouring query heads that share their rows' lists
  int page = 0;            // tokens; 0: keys and values are contiguous
  bool causal = true;
  DType kv_dtype = DType::kBF16;  // or kE4M3, with a scale a head
  bool by_name_only = false;      // takes tens of GB and seconds a call

  bool dense() const { return density == 0 && top == 0; }
};

std::span<const CudaCase> cuda_cases();

}  // namespace routerelay::bench
