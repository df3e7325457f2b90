// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 queries of every tile that its loader brings. Products and softmax form one pipeline over
// all steps of all rows: while a step's probabilities multiply values, the next step's scores are made, be it of the
// same row or of the next, so that no row begins or ends with idle tensor cores.
#pragma once

#include "cuda/attend/params.h"
#include "cuda/attend/sm90/shared.cuh"
#include "cuda/attend/sm90/softmax.cuh"
#include "cuda/isa/e4m3.cuh"
#include "cuda/isa/stmatrix.cuh"
#include "cuda/isa/wgmma.cuh"

namespace routerelay::cuda {

// The operation of e4m3 exists for one N only: it is named where it is used.
template <class Element, int N, bool quantised>
struct ScoreOpOf {
  using Op = typename Wgmma<Element, N>::template Shared<Major::K>;
};
template <class Element, int N>
struct ScoreOpOf<Element, N, true> {
  using Op = typename WgmmaE4M3<N>::Shared;
};

template <AttendConfig cfg>
class Consumer {
  using C = Cut<cfg>;
  using S = Stream<cfg>;
  using Element = typename S::Element;
  using Weight = typename S::Weight;
  static constexpr int D = cfg.head_dim, N = C::kStepKeys;
  static constexpr uint32_t kTurn = 1,
                            kWholeConsumer = kTurn + kConsumers;  // named barriers, one for each consumer
  static constexpr bool kQuantised = is_quantised(cfg);
  using ScoreOp = typename ScoreOpOf<Element, N, kQuantised>::Op;
  using OutputOp = typename Wgmma<Weight, D>::template Registers<Major::MN>;

 public:
  __device__ Consumer(const AttendParams& params, Shared<cfg>& shared, int index)
      : params_(params),
        stream_(shared.stream[C::kStreams == 1 ? 0 : index]),
        index_(index),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    uint32_t even[N / 4], odd[N / 4];  // probabilities: of one step in use, of the next in the making
    if (index_ == 1) pass_turn();      // consumer 0 begins
    next_row();
    if (steps_ == 0) return;
    take_turn();
    begin_scores(tile_, key_slot_);
    pass_turn();
    wait_for_products<0>();
    weigh(even, 0);
    step_on();
    if (ends_)
      next_row();
    else
      key_slot_ = next_key_slot();
    while (turn<0>(even, odd) && turn<1>(odd, even)) continue;
  }

 private:
  // Scores of the next step and, from the probabilities at hand, their part of the output; then the next probabilities.
  // False after the very last output. `which` tells the steps apart whose probabilities are at hand and in the making.
  template <int which>
  __device__ __forceinline__ bool turn(uint32_t (&probability)[N / 4], uint32_t (&next)[N / 4]) {
    const int out_tile = out_tile_;
    if (steps_ == 0) [[unlikely]] {
      named_wait(kWholeConsumer + index_, kWarpgroup);
      if (stream_.misfit[part()][which] != 0) weigh_again(probability, which);
      begin_output(probability);
      wait_for_products<0>();
      settled(output_);
      write_output(rows_, out_tile);
      return false;
    }
    take_turn();  // also: what the other warps of this consumer say of the step at hand is known
    if (stream_.misfit[part()][which] != 0) [[unlikely]]
      weigh_again(probability, which);
    free_key_slot(out_key_slot_);
    begin_scores(tile_, key_slot_);
    // Of three slots, the values at hand come into one that the other consumer gives back in its turn.
    constexpr bool kEarly = !kQuantised && S::kSlots == 3;
    if constexpr (kEarly) pass_turn();
    const int value_slot = begin_output(probability);
    if constexpr (!kEarly) pass_turn();
    wait_for_products<1>();
    const bool ends = ends_;
    const Softmax<Weight> ended = rows_;
    if (ends) rows_ = {};
    weigh(next, which ^ 1);
    step_on();
    // The tile after the next comes into the buffer of the output at hand: after a row of one step it must wait.
    const bool late = ends && ends_;
    if (!ends_) [[likely]] {
      key_slot_ = next_key_slot();
    } else if (!late) {
      next_row();
    }
    wait_for_products<0>();
    settled(output_);
    free_slot(value_slot);
    if (ends) [[unlikely]] {
      write_output(ended, out_tile);
      if (late) next_row();
    }
    return true;
  }

  // Consumers of a tile issue their products in turn, so that one computes exponentials while the other multiplies.
  // With tiles of their own they drift, and only the warps of each meet here.
  __device__ void take_turn() { named_wait(kTurn + index_, C::kConsumersEach * kWarpgroup); }
  __device__ void pass_turn() {
    if constexpr (C::kConsumersEach == 2) named_arrive(kTurn + (index_ ^ 1), kConsumers * kWarpgroup);
  }

  // Which 64 queries of a tile it has.
  __device__ int part() const { return C::kConsumersEach == 2 ? index_ : 0; }

  // Goes to the first step of the next row; steps_ is 0 if there is none.
  __device__ void next_row() {
    stream_.query_full[buffer_.slot].wait(buffer_.parity);
    tile_ = buffer_.slot;
    steps_ = stream_.tile[tile_].steps;
    special_ = max(1, stream_.tile[tile_].masked);
    step_ = 0;
    buffer_.advance();
    if constexpr (kQuantised) {
      if (steps_ > 0) split_queries();
    }
    if (steps_ > 0) key_slot_ = next_key_slot();
  }

  // The row's queries, 16 bits each, become two e4m3 parts whose sum they are, nearly. What the larger part leaves goes
  // to the tile's first box: products of e4m3 are summed with some 13 bits of the largest, so the small ones come
  // first. Two lanes a query, 64 dims each; a warp's queries are its own.
  __device__ void split_queries() {
    const int row = warp_ * 16 + lane_ / 2, half = lane_ % 2;
    auto& boxes = stream_.query[tile_][part()];
    uint4 chunk[8];
    float most = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      chunk[c] =
          *reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(boxes[half]) + swizzled(row, c));
      most = fmaxf(most, largest_of<Element>(chunk[c]));
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    const PowerOfTwo up = PowerOfTwo::that_fits_e4m3(most);
    __syncwarp();
#pragma unroll
    for (int c = 0; c < 8; c += 2) {
      uint4 large, rest;
      split_e4m3<Element>(chunk[c], chunk[c + 1], up.value, large, rest);
      const int at = swizzled(row, half * 4 + c / 2);
      *reinterpret_cast<uint4*>(reinterpret_cast<char*>(boxes[0]) + at) = rest;
      *reinterpret_cast<uint4*>(reinterpret_cast<char*>(boxes[1]) + at) = large;
    }
    const float factor = params_.scale_log2 * stream_.key_scale[tile_] * up.inverse;
    // Never 0, which times a hidden score's -inf would be NaN. NaN stays.
    if (half == 0) stream_.score_scale_log2[tile_][part()][row] = factor < FLT_MIN ? FLT_MIN : factor;
    fence_for_async_reads();
    named_wait(kWholeConsumer + index_, kWarpgroup);
  }

  __device__ int next_slot() {
    const int slot = slot_.slot;
    stream_.slot_full[slot].wait(slot_.parity);
    slot_.advance();
    return slot;
  }
  __device__ int next_key_slot() {
    if constexpr (kQuantised) {
      const int slot = key8_.slot;
      stream_.key8_full[slot].wait(key8_.parity);
      key8_.advance();
      return slot;
    } else {
      return next_slot();
    }
  }
  __device__ void free_key_slot(int slot) {
    if constexpr (kQuantised) {
      if (lane_ == 0) stream_.key8_free[slot].arrive();
    } else {
      free_slot(slot);
    }
  }
  __device__ void free_slot(int slot) {
    if (lane_ == 0) stream_.slot_free[slot].arrive();
  }

  // scores = queries x keys, 16 dims at a time, or 32 of a part of the queries.
  __device__ void begin_scores(int tile, int key_slot) {
    const Matrix queries = Matrix::at(stream_.query[tile][part()]);
    const Matrix keys = key_tile(key_slot);
    begin_products();
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      const int box = d / kBoxDims, within = d % kBoxDims * 2;
      multiply<ScoreOp>(queries.moved(box * kConsumerRows * 128 + within),
                        keys.moved((kQuantised ? 0 : box * N * 128) + within), score_,
                        d == 0 ? ScaleOut::Zero : ScaleOut::One);
    }
    end_products();
  }

  __device__ Matrix key_tile(int slot) const {
    if constexpr (kQuantised)
      return Matrix::at(stream_.key8[slot]);
    else
      return Matrix::at(stream_.slot[slot]);
  }

  // Of the scores of a tile's queries.
  __device__ __forceinline__ auto scale_of(int tile) const {
    if constexpr (kQuantised) {
      const float* row = stream_.score_scale_log2[tile][part()] + warp_ * 16 + lane_ / 4;
      return RowScales{{row[0], row[8]}};
    } else {
      return OneScale{params_.scale_log2};
    }
  }

  // output += probabilities x values of the next slot, 16 keys at a time.
  __device__ int begin_output(const uint32_t (&probability)[N / 4]) {
    const int slot = next_slot();
    if constexpr (!kQuantised) {
      if (out_step_ < C::kMaxMasked) [[unlikely]]
        zero_tail(slot);
    }
    const Matrix values = Matrix::at(stream_.slot[slot], N * 128);
    begin_products();
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      multiply<OutputOp>(&probability[n / 4], values.moved(n * 128), output_,
                         first_ && n == 0 ? ScaleOut::Zero : ScaleOut::One);
    }
    end_products();
    return slot;
  }

  // Scores of step_, which have arrived -> its probabilities.
  __device__ __forceinline__ void weigh(uint32_t (&probability)[N / 4], int which) {
    settled(score_);
    const auto scale = scale_of(tile_);
    if (step_ < special_) [[unlikely]] {
      hide_unseen(stream_.tile[tile_], step_);
      rows_.begin(score_, scale);
    }
    if (!rows_.weigh(score_, scale, probability)) stream_.misfit[part()][which] = 1;
    settled(probability);  // not after the wait for the values' products, which exponentials hide
  }

  // The step at hand once more, its tops raised: scores passed them too far. Rare, since a row begins
  // with the maximum of its first step; what it costs is one product. All warps of the consumer come here together.
  __device__ __forceinline__ void weigh_again(uint32_t (&probability)[N / 4], int which) {
    begin_scores(out_tile_, out_key_slot_);
    wait_for_products<0>();
    settled(score_);
    const Tile<cfg>& tile = stream_.tile[out_tile_];
    if (out_step_ < tile.masked) hide_unseen(tile, out_step_);
    const auto scale = scale_of(out_tile_);
    float factor[2];
    rows_.raise(score_, scale, factor);
    // Where a last place of a score is worth more than kMost, and where it is NaN, it may still not fit: it stays.
    rows_.weigh(score_, scale, probability);
    rescale(factor);
    named_wait(kWholeConsumer + index_, kWarpgroup);  // everyone has seen why
    stream_.misfit[part()][which] = 0;
  }

  // The probabilities just made become those at hand.
  __device__ __forceinline__ void step_on() {
    first_ = step_ == 0;
    out_step_ = step_;
    ends_ = ++step_ == steps_;
    out_tile_ = tile_;
    out_key_slot_ = key_slot_;
  }

  // Values that no query of the row sees have a weight of 0, but may be anything: 0 times NaN is NaN. (Of e4m3 the
  // converters do it.)
  __device__ void zero_tail(int slot) {
    const Tile<cfg>& tile = stream_.tile[out_tile_];
    if (out_step_ >= tile.ragged) return;
#pragma unroll
    for (int piece = 0; piece < C::kPieces; ++piece) {
      const int begin = min(C::kPieceKeys, max(0, tile.keys - tile.first_key[out_step_][piece]));
      for (int chunk = begin * 8 + static_cast<int>(threadIdx.x) % kWarpgroup; chunk < C::kPieceKeys * 8;
           chunk += kWarpgroup) {
#pragma unroll
        for (int box = 0; box < S::kBoxes; ++box)
          reinterpret_cast<int4*>(stream_.slot[slot][box] + piece * C::kPieceKeys * kBoxDims)[chunk] = int4{};
      }
    }
    fence_for_async_reads();
    named_wait(kWholeConsumer + index_, kWarpgroup);
  }

  __device__ void hide_unseen(const Tile<cfg>& tile, int step) {
    constexpr int kColumns = 32;  // at a time: most are seen by all 16 queries of a warp, or by none
    const int seen = params_.causal ? tile.position + part() * C::kQueryStep + warp_ * 16 + 1 : kNoKey;
#pragma unroll
    for (int begin = 0; begin < N; begin += kColumns) {
      const int key = tile.first_key[step][begin / C::kPieceKeys] + begin % C::kPieceKeys;
      if (key + kColumns <= min(seen, tile.keys)) continue;
      const int left[2] = {min(seen + lane_ / 4, tile.keys) - key - lane_ % 4 * 2,
                           min(seen + lane_ / 4 + 8, tile.keys) - key - lane_ % 4 * 2};
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        if (i / 4 * 8 + i % 2 >= left[i / 2 % 2]) score_[begin / 2 + i] = -INFINITY;
      }
    }
  }

  __device__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) output_[i] *= factor[i / 2 % 2];
  }

  // Over the row's queries, which no product reads any more; the storer brings it to device memory.
  __device__ void write_output(const Softmax<Weight>& rows, int tile_idx) {
    const float total[2] = {rows.total(0), rows.total(1)};
    float inverse[2] = {total[0] == 0 ? 0 : reciprocal_approx(total[0]),
                        total[1] == 0 ? 0 : reciprocal_approx(total[1])};
    if constexpr (kQuantised) {
      inverse[0] *= stream_.value_scale[tile_idx];
      inverse[1] *= stream_.value_scale[tile_idx];
    }
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      uint32_t values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[i] = packed<Element>(output_[d / 2 + 2 * i] * inverse[i % 2],
                                    output_[d / 2 + 2 * i + 1] * inverse[i % 2]);
      char* box = reinterpret_cast<char*>(stream_.query[tile_idx][part()][d / kBoxDims]);
      const int row = warp_ * 16 + lane_ % 16, chunk = d % kBoxDims / 8 + lane_ / 16;
      store_matrices(box + swizzled(row, chunk), values);
    }
    // Read before the storer may give the tile back. Written after the fence, which waits for every store before it.
    const Tile<cfg>& tile = stream_.tile[tile_idx];
    const int query = part() * C::kQueryStep + warp_ * 16 + lane_ / 4, queries = tile.q_count;
    const int64_t head = tile.q_head + part() * C::kHeadStep;
    float* const lse_log2 = params_.lse_log2 == nullptr
                                ? nullptr
                                : params_.lse_log2 + head * params_.lse_tokens + tile.q_begin + query;
    fence_for_async_reads();
    stream_.out_full[tile_idx].arrive();
    if (lse_log2 == nullptr || lane_ % 4 != 0) return;
    if (query < queries) lse_log2[0] = rows.top[0] + log2_approx(total[0]);
    if (query + 8 < queries) lse_log2[8] = rows.top[1] + log2_approx(total[1]);
  }

  const AttendParams& params_;
  S& stream_;
  const int index_, warp_, lane_;
  Ring<2> buffer_;           // the query tile after tile_
  Ring<S::kSlots> slot_;     // the slot that is read next
  Ring<S::kKeySlots> key8_;  // the slot of e4m3 keys that is read next
  int tile_ = 0;             // whose scores are made next
  int steps_ = 0, step_ = 0;
  int special_ = 0;  // its first steps: the first of all, and those with hidden keys
  int key_slot_ = 0;
  int out_tile_ = 0, out_step_ = 0, out_key_slot_ = 0;  // of the probabilities at hand
  bool first_ = true, ends_ = false;                    // they are their row's first, last
  Softmax<Weight> rows_;
  float score_[N / 2];
  float output_[D / 2];
};

}  // namespace routerelay::cuda
