// SPDX-License-Identifier: Apache-2.0
// The same bits from attend on the GPU, however it is called: again, beside another call, from a graph, in chunks.
#include <gtest/gtest.h>

#include <utility>

#include "cuda/attend_fixture.h"

namespace routerelay::cuda {
namespace {

using support::full_routes;
using support::Problem;
using support::random_routes;

class Stream {
 public:
  Stream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Graph {
 public:
  // `enqueue(stream)` is recorded, not run.
  template <class Enqueue>
  explicit Graph(const Enqueue& enqueue) {
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    enqueue(stream_);
    cudaGraph_t graph = nullptr;
    must(cudaStreamEndCapture(stream_, &graph));
    const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    must(error);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(exec_); }

  void replay() const {
    must(cudaGraphLaunch(exec_, stream_));
    must(cudaStreamSynchronize(stream_));
  }

 private:
  Stream stream_;
  cudaGraphExec_t exec_ = nullptr;
};

class CudaAttendRepeat : public OnDevice {};
RR_FOR_EVERY_CONFIG(CudaAttendRepeat);

// Which CTA takes which row differs from run to run.
TEST_P(CudaAttendRepeat, SameBitsAgain) {
  Problem first(square(2000, 8, 2)), again(square(2000, 8, 2));
  const Routes routes = random_routes(first.rows, 8, 0.3, 41);
  attend_on_device(first, routes);
  for (int i = 0; i < 5; ++i) {
    attend_on_device(again, routes);
    expect_same_bits(first, again);
  }
}

TEST_P(CudaAttendRepeat, InTheSameMemory) {
  Problem first(square(600, 4, 2)), again(square(600, 4, 2));
  const Routes routes = random_routes(first.rows, 4, 0.5, 42);
  attend_on_device(first, routes);
  DeviceAttend call = call_of(again, routes);
  for (int i = 0; i < 3; ++i) {
    again.poison();
    call.poison_results(again);
    RR_ASSERT_OK(call.enqueue());
    call.fetch(again);
    expect_same_bits(first, again);
  }
}

TEST_P(CudaAttendRepeat, BesideAnotherCall) {
  Problem a(square(1500, 4, 2)), b(square(1200, 4, 4)), a_alone(square(1500, 4, 2)),
      b_alone(square(1200, 4, 4));
  const Routes routes = random_routes(b.rows, 4, 0.5, 43);
  attend_on_device(a_alone, full_routes());
  attend_on_device(b_alone, routes);
  const DeviceAttend call_a = call_of(a, full_routes()), call_b = call_of(b, routes);
  must(cudaDeviceSynchronize());  // uploads are on the default stream, which these two do not wait for
  const Stream stream_a, stream_b;
  RR_ASSERT_OK(call_a.enqueue(stream_a));
  RR_ASSERT_OK(call_b.enqueue(stream_b));
  call_a.fetch(a);
  call_b.fetch(b);
  expect_same_bits(a_alone, a);
  expect_same_bits(b_alone, b);
}

// A graph holds addresses, not routes: what lies there at replay counts.
TEST_P(CudaAttendRepeat, FromAGraph) {
  Problem p(square(1000, 4, 2));
  DeviceAttend call = call_of(p, random_routes(p.rows, 4, 0.2, 44));
  Status status;
  const Graph graph([&](cudaStream_t stream) { status = call.enqueue(stream); });
  RR_ASSERT_OK(status);
  for (const double share : {0.1, 0.9, 0.5}) {
    SCOPED_TRACE(share);
    const Routes routes = random_routes(p.rows, 4, share, 45);
    p.poison();
    call.set_routes(p, routes);
    call.poison_results(p);
    must(cudaDeviceSynchronize());
    graph.replay();
    call.fetch(p);
    Problem direct(square(1000, 4, 2));
    attend_on_device(direct, routes);
    expect_same_bits(direct, p);
  }
}

// Nor pages: between replays of one graph the cache moves, and routes change.
TEST_P(CudaAttendRepeat, RaggedPagesFromAGraph) {
  Problem p(ragged(400, 4, 2)), direct(ragged(400, 4, 2));
  DeviceAttend call = call_of(p, random_routes(p.rows, 4, 0.3, 46), {.spare_rows = 3, .paging = Paging{}});
  Status status;
  const Graph graph([&](cudaStream_t stream) { status = call.enqueue(stream); });
  RR_ASSERT_OK(status);
  for (const uint64_t seed : {2, 3, 4}) {
    SCOPED_TRACE(seed);
    const Routes routes = random_routes(p.rows, 4, 0.5, seed);
    p.poison();
    call.set_routes(p, routes);
    call.move_pages(p, seed);
    call.poison_results(p);
    must(cudaDeviceSynchronize());
    graph.replay();
    call.fetch(p);
    attend_on_device(direct, routes);
    expect_same_bits(direct, p);
  }
}

// Heads know nothing of each other: in another order they give the same, elsewhere. Those that share a tile stay
// together.
TEST_P(CudaAttendRepeat, HeadsInAnyOrder) {
  constexpr int64_t kTokens = 700, kHeads = 12, kKvHeads = 2, kGroup = kHeads / kKvHeads;
  const int64_t together = GetParam().heads_per_tile;
  const auto moved = [&](int64_t head) {
    return (kKvHeads - 1 - head / kGroup) * kGroup + (head + together) % kGroup;
  };
  Problem p(square(kTokens, kHeads, kKvHeads)), shuffled(square(kTokens, kHeads, kKvHeads));
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t c = 0; c < p.q.view.head_dim; ++c) {
      for (int64_t h = 0; h < kHeads; ++h) shuffled.q.set(t, moved(h), c, p.q.get(t, h, c));
      for (int64_t h = 0; h < kKvHeads; ++h) {
        shuffled.k.set(t, kKvHeads - 1 - h, c, p.k.get(t, h, c));
        shuffled.v.set(t, kKvHeads - 1 - h, c, p.v.get(t, h, c));
      }
    }
  const auto in_route = [&](int64_t head, int64_t row, int32_t block) {
    return (head / together + row + block) % 3 != 0;
  };
  attend_on_device(p, support::make_routes(p.rows, kHeads, in_route));
  attend_on_device(shuffled,
                   support::make_routes(p.rows, kHeads, [&](int64_t head, int64_t row, int32_t block) {
                     int64_t from = 0;
                     while (moved(from) != head) ++from;
                     return in_route(from, row, block);
                   }));
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t h = 0; h < kHeads; ++h) {
      ASSERT_EQ(p.lse_log2[h * kTokens + t], shuffled.lse_log2[moved(h) * kTokens + t]) << t << " " << h;
      for (int64_t c = 0; c < p.q.view.head_dim; ++c)
        ASSERT_EQ(p.out.get(t, h, c), shuffled.out.get(t, moved(h), c)) << t << " " << h;
    }
}

TEST_P(CudaAttendRepeat, InChunksOfWholeRows) {
  constexpr int64_t kTokens = 1100;
  Problem whole(square(kTokens)), chunked(square(kTokens));
  attend_on_device(whole, full_routes());
  for (const int64_t chunk : {128, 384, 512}) {
    SCOPED_TRACE(chunk);
    chunked.poison();
    for (int64_t begin = 0; begin < kTokens; begin += chunk) {
      const int64_t count = std::min(chunk, kTokens - begin);
      chunked.sequences = {{begin, count, 0, begin + count, begin}};
      chunked.rows = make_rows(chunked.sequences, GetParam().q_block, GetParam().k_block);
      const DeviceAttend call = call_of(chunked, full_routes());
      RR_ASSERT_OK(call.enqueue());
      Problem part(square(kTokens));
      call.fetch(part);
      for (int64_t t = begin; t < begin + count; ++t)
        for (int64_t h = 0; h < 2; ++h) {
          std::memcpy(chunked.out.mutable_view.at(t, h), part.out.view.at(t, h),
                      static_cast<size_t>(2 * part.out.view.head_dim));
          chunked.lse_log2[h * kTokens + t] = part.lse_log2[h * kTokens + t];
        }
    }
    expect_same_bits(whole, chunked);
  }
}

}  // namespace
}  // namespace routerelay::cuda
