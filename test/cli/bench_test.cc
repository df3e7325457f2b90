// SPDX-License-Identifier: Apache-2.0
// bench and reproduce say what issues ask them for; their figures are the machine's business.
#include <gmock/gmock.h>

#include "cli/command_line.h"

namespace routerelay {
namespace {

using support::json_of;
using support::values;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(CliBench, LayerGivesEveryStageOfBothKinds) {
  const auto j = json_of("bench", "layer --keys 3072 --head-dim 64 --dtype f16 --seconds 0.01");
  for (const char* kind : {"first", "relayed"})
    for (const char* stage : {"summarize", "relay", "route", "total"})
      EXPECT_THAT(values(j, "share_of_dense",
                         {{"stage", stage}, {"preset", "balanced"}, {"layer_kind", kind}, {"keys", 3072}}),
                  SizeIs(1));
  EXPECT_THAT(values(j, "share_of_dense", {{"stage", "total"}}), Each(Gt(0)));
}

TEST(CliBench, LayerTakesOptionsOverAPreset) {
  const std::string args = "layer --keys 3072 --head-dim 64 --dtype f16 --seconds 0.01 --set ";
  const auto j = json_of("bench", args + "selection.floor=0.4");
  const std::string preset = "balanced selection.floor=0.4";
  EXPECT_THAT(values(j, "density", {{"preset", preset}}), SizeIs(2));
  EXPECT_THAT(values(j, "density", {{"preset", preset}}), Each(Gt(0.35)));
  const auto refused = support::routerelay("bench " + args + "router.samples=0");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("router.samples is 0"));
}

TEST(CliBench, PeakAndAttendGiveGflops) {
  const auto peak = json_of("bench", "peak --isa scalar --dtype f32 --seconds 0.01");
  EXPECT_THAT(values(peak, "gflops", {{"isa", "scalar"}, {"dtype", "f32"}}), SizeIs(Gt(0u)));
  for (const std::string dtype : {"f32", "q8_0"}) {
    const auto attend = json_of("bench", "attend --isa scalar --dtype " + dtype +
                                             " --head-dim 64 --keys 512 --density 1 --seconds 0.01");
    EXPECT_THAT(
        values(attend, "gflops", {{"isa", "scalar"}, {"dtype", dtype}, {"head_dim", 64}, {"keys", 512}}),
        SizeIs(Gt(0u)));
  }
}

TEST(CliBench, CudaAttendGivesTflops) {
  const std::string few = "cuda-attend --case even-rows-32k,ragged-paged --seconds 0.01";
  const support::Outcome tried = support::routerelay("bench " + few);
  for (const char* lack : {"no CUDA back end", "cudaGetDevice"})
    if (tried.code == 1 && tried.err.find(lack) != std::string::npos) GTEST_SKIP() << tried.err;
  const auto j = json_of("bench", few);
  EXPECT_THAT(values(j, "multiprocessors", {}), SizeIs(1));
  EXPECT_THAT(values(j, "tflops", {{"case", "even-rows-32k"}, {"block", "128x128"}, {"page", 0}}), SizeIs(1));
  EXPECT_THAT(values(j, "tflops", {{"case", "ragged-paged"}, {"page", 64}}), SizeIs(1));
  EXPECT_THAT(values(j, "tflops", {}), Each(Gt(0)));
}

}  // namespace
}  // namespace routerelay
