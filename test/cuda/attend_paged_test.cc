// SPDX-License-Identifier: Apache-2.0
// Attend on the GPU over keys and values in pages: the bits that contiguous ones give, wherever the pages lie.
#include <gtest/gtest.h>

#include "cuda/attend_fixture.h"

namespace routerelay::cuda {
namespace {

using support::full_routes;
using support::Layout;
using support::Problem;
using support::ProblemArgs;
using support::random_routes;

constexpr int kPageSizes[] = {16, 32, 64, 128, 256};

class CudaAttendPaged : public OnDevice {
 protected:
  // Of one problem, contiguous and then in pages of every size and layout.
  static void expect_same_in_pages(const ProblemArgs& args, const CallOptions& options = {}) {
    Problem flat(args), paged(args);
    for (const Routes& routes : {full_routes(), random_routes(flat.rows, args.q_heads, 0.4, 51)}) {
      SCOPED_TRACE(routes.full ? "every block" : "some blocks");
      attend_on_device(flat, routes, options);
      for (const int page_size : kPageSizes)
        for (const Layout layout : {Layout::kTokenMajor, Layout::kHeadMajor, Layout::kPadded}) {
          SCOPED_TRACE(testing::Message()
                       << "pages of " << page_size << ", layout " << static_cast<int>(layout));
          CallOptions in_pages = options;
          in_pages.paging = {page_size, layout};
          attend_on_device(paged, routes, in_pages);
          expect_same_bits(flat, paged);
        }
    }
  }
};
RR_FOR_EVERY_CONFIG(CudaAttendPaged);

TEST_P(CudaAttendPaged, RaggedBatch) {
  expect_same_in_pages(ragged(511, 4, 2));
}

TEST_P(CudaAttendPaged, LongSequence) {
  const int64_t q_heads = GetParam().heads_per_tile;
  Problem flat(ragged(4095, q_heads, 1)), paged(ragged(4095, q_heads, 1));
  const Routes routes = scattered_routes(flat.rows, q_heads, 0.3, 52);
  attend_on_device(flat, routes);
  for (const int page_size : kPageSizes) {
    SCOPED_TRACE(page_size);
    attend_on_device(paged, routes, {.paging = Paging{page_size}});
    expect_same_bits(flat, paged);
  }
}

TEST_P(CudaAttendPaged, OneSequenceByValue) {
  for (const int64_t tokens : {1, 17, 256, 600}) {
    SCOPED_TRACE(tokens);
    expect_same_in_pages(square(tokens));
  }
}

TEST_P(CudaAttendPaged, NotCausal) {
  ProblemArgs args = configured({.q_tokens = 500, .k_tokens = 700, .q_heads = 2, .kv_heads = 1});
  args.sequences = {{0, 200, 0, 30, 30}, {200, 0, 30, 10, 10}, {200, 300, 50, 650, 650}};
  expect_same_in_pages(args, {.causal = false});
}

// Not by the contiguous kernel's word alone.
TEST_P(CudaAttendPaged, AgreesWithFloat64) {
  Problem p(ragged(300, 2, 1));
  for (const int page_size : {16, 256}) {
    SCOPED_TRACE(page_size);
    expect_right(p, full_routes(), {.paging = Paging{page_size}});
    expect_right(p, scattered_routes(p.rows, 2, 0.5, 53), {.spare_rows = 2, .paging = Paging{page_size}});
  }
}

}  // namespace
}  // namespace routerelay::cuda
