// SPDX-License-Identifier: Apache-2.0
// What the scorers hand to their kernels: plain structs, because kernels are compiled with their ISA's flags and must
// not emit inline functions that other code shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "routerelay/engine.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay::cpu {

// Most packed query vectors of one softmax job: the lines of their sums that are being written fill most of L1.
inline constexpr int kMaxVectors = 512;
// Most of them that a kernel scores before it sums: scores and vectors stay within L1.
inline constexpr int kMaxBatch = 48;

// How the keys of a softmax router lie in panels of 64 columns. A column is a key (sampled) or a group of keys (sub,
// antidiag), and a slot is what panels are walked by: one block of 64 or more columns, or several smaller ones. Column
// j of the b-th block of a slot is number j * blocks_per_slot + b, so that the sums per block are sums of vectors.
struct PanelShape {
  int length = 0;  // elements of a vector
  int columns_per_block = 0;
  int blocks_per_slot = 1;  // a power of two
  int panels_per_slot = 1;
  int64_t panel_bytes = 0;
};

// One request: the vectors of one row and query head, against the blocks that it asks for.
struct SoftmaxRequest {
  int first_vector = 0;
  int n_vectors = 0;
  int n_ids = 0;
  const int32_t* ids = nullptr;  // ascending, in the sequence
  int64_t first_block = 0;       // of the sequence, among all packed blocks; begins a slot
  int64_t patch_column = -1;     // a column whose score is in `patch`, not in the panels; -1: none
  float* score = nullptr;        // [n_ids], written
};

// Where a request stands while slots are walked.
struct SoftmaxProgress {
  int64_t next = 0;  // the slot that is wanted next
  int cursor = 0;    // of its next id
  int n_slots = 0;   // taken so far
};

// A vector that wants the slot at hand.
struct SoftmaxTaker {
  int vector = 0;
  int request = 0;
  int n_slots = 0;     // that it took before
  uint64_t asked = 0;  // bit b: the slot's b-th block is asked for
};

// A thread's buffers, 64-byte aligned. V is the job's number of vectors, S the tile's step of rows.
struct SoftmaxScratch {
  float* s = nullptr;             // [kMaxBatch + S][panels_per_slot * 64]
  std::byte* gathered = nullptr;  // [kMaxBatch + S] vectors, for batches that do not lie side by side
  float* sums = nullptr;    // [V][sum_pitch]: per block of every slot taken, relative to the vector's shift
  float* shifts = nullptr;  // [V]
  SoftmaxTaker* takers = nullptr;       // [V]
  SoftmaxProgress* progress = nullptr;  // [requests]
  int64_t sum_pitch = 0;
};

struct SoftmaxJob {
  PanelShape shape;
  const std::byte* panels = nullptr;   // of the KV head
  const std::byte* vectors = nullptr;  // packed, times scale * log2(e)
  int n_vectors = 0;
  const int64_t* limits =
      nullptr;  // [n_vectors]: columns from here on, counted over all packed blocks, are not visible
  const float* patch = nullptr;              // [n_vectors]: the score of patch_column
  const SoftmaxRequest* requests = nullptr;  // their vectors follow each other
  int n_requests = 0;
  SoftmaxScratch scratch;
};

// The softmax routers on one ISA.
struct SoftmaxKernel {
  int elem_bytes = 0;
  int row_step = 1;
  int (*pitch)(int head_dim) = nullptr;
  // As in isa/tile.h, on bytes.
  void (*pack_keys)(const std::byte* x, DType dtype, int64_t stride, int n, int head_dim,
                    std::byte* out) = nullptr;
  void (*pack_rows)(const std::byte* x, DType dtype, int64_t stride, int n, int head_dim, float factor,
                    std::byte* out) = nullptr;
  void (*score)(const SoftmaxJob& job) = nullptr;
};

// One request of a router whose score of a pair depends on that pair alone. Vectors of block id are at [id][head_dim].
struct PairJob {
  const std::byte* q = nullptr;  // the row's queries of one head
  DType q_dtype = DType::kF32;
  int64_t q_stride = 0;
  int n_queries = 0;  // 1 .. 128
  int head_dim = 0;
  float scale = 0;
  const int32_t* ids = nullptr;
  int n_ids = 0;
  const float* centre = nullptr;  // centroid, ball: means
  const float* low = nullptr;     // box
  const float* high = nullptr;
  const float* lift = nullptr;  // ball: [n_ids], times |q| what rescue adds; null when nobody asked
  float* score = nullptr;       // [n_ids]
  float* rescue = nullptr;      // [n_ids]
  float* scratch = nullptr;     // kPairScratchVectors * head_dim + kPairScratchScores floats
};
// Query panels of box take 2 x 128 vectors; the other routers take less.
inline constexpr int64_t kPairScratchVectors = 256;
// Two score buffers of kPairBlocks x 128, and the norms.
inline constexpr int kPairBlocks = 16;
inline constexpr int64_t kPairScratchScores = 2 * kPairBlocks * 128 + 128;

// centroid, box and ball on one ISA, always in f32: relay compares these scores, and box and ball are bounds.
struct PairKernel {
  void (*centroid)(const PairJob& job) = nullptr;
  void (*box)(const PairJob& job) = nullptr;
  void (*ball)(const PairJob& job) = nullptr;
  // Means of each `step` of n tokens, the last one of what is left, rounded to bf16 and held in f32:
  // [ceil(n / step)][head_dim]. scratch: step * head_dim floats.
  void (*group_means)(const std::byte* x, DType dtype, int64_t stride, int n, int step, int head_dim,
                      float* scratch, float* out) = nullptr;
  // Plain product of two f32 vectors.
  float (*dot)(const float* a, const float* b, int n) = nullptr;
};

extern const SoftmaxKernel kSoftmaxScalar, kSoftmaxAvx2, kSoftmaxAvx512, kSoftmaxAvx512Bf16, kSoftmaxAmx;
extern const PairKernel kPairScalar, kPairAvx2, kPairAvx512;

const SoftmaxKernel& softmax_kernel(Isa isa);
const PairKernel& pair_kernel(Isa isa);

}  // namespace routerelay::cpu
