// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/cases.h"

namespace routerelay::bench {
namespace {

// Some end inside a page and inside a block.
const std::vector<int64_t> kRagged = {1024, 3000, 5120, 9999, 16384, 24001, 40000, 65536};
const std::vector<int64_t> k8K = {8192}, k64K = {65536}, k128K = {131072}, k1M = {1048576}, kVideo = {109632};

// clang-format off
const CudaCase kCases[] = {
    {.name = "128x128-32k-5", .density = 0.05},
    {.name = "128x128-32k-10", .density = 0.10},
    {.name = "128x128-32k-25", .density = 0.25},
    {.name = "128x128-32k-full", .density = 1.0},
    {.name = "128x128-128k-5", .lengths = k128K, .density = 0.05},
    {.name = "128x128-1m-5", .lengths = k1M, .density = 0.05, .by_name_only = true},
    {.name = "128x64-32k-10", .k_block = 64, .density = 0.10},
    {.name = "128x64-128k-10", .k_block = 64, .lengths = k128K, .density = 0.10},
    {.name = "64x64-32k-10", .q_block = 64, .k_block = 64, .density = 0.10},
    {.name = "64x64-32k-10-group", .q_block = 64, .k_block = 64, .density = 0.10, .heads_per_list = 4},
    {.name = "64x64-64k-10-mqa", .q_block = 64, .k_block = 64, .lengths = k64K, .q_heads = 128, .kv_heads = 1,
     .density = 0.10, .heads_per_list = 128, .causal = false},
    {.name = "64x64-128k-5", .q_block = 64, .k_block = 64, .lengths = k128K, .q_heads = 8, .density = 0.05},
    {.name = "64x64-109632-top64", .q_block = 64, .k_block = 64, .lengths = kVideo, .q_heads = 7, .kv_heads = 7,
     .top = 64, .causal = false},
    {.name = "dense-8k", .lengths = k8K},
    {.name = "dense-32k"},
    {.name = "dense-128k", .lengths = k128K},
    {.name = "even-rows-32k", .top = 5},
    {.name = "one-long-row-32k", .top = 5, .longest = 50},
    {.name = "ragged", .lengths = kRagged, .density = 0.10},
    {.name = "ragged-paged", .lengths = kRagged, .density = 0.10, .page = 64},
    {.name = "d64-128x64-32k-10", .k_block = 64, .head_dim = 64, .density = 0.10},
    {.name = "e4m3-128x128-32k-10", .density = 0.10, .kv_dtype = DType::kE4M3},
    {.name = "e4m3-128x64-32k-10", .k_block = 64, .density = 0.10, .kv_dtype = DType::kE4M3},
    {.name = "e4m3-128x64-128k-10", .k_block = 64, .lengths = k128K, .density = 0.10, .kv_dtype = DType::kE4M3},
    {.name = "e4m3-dense-32k", .kv_dtype = DType::kE4M3},
};
// clang-format on

}  // namespace

std::span<const CudaCase> cuda_cases() {
  return kCases;
}

}  // namespace routerelay::bench
