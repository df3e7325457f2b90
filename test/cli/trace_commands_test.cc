// SPDX-License-Identifier: Apache-2.0
// run, compare and explain on a structured trace: records, tables, and figures that must hold whatever the machine.
#include <gmock/gmock.h>

#include <numeric>

#include "cli/command_line.h"

namespace routerelay {
namespace {

using support::json_of;
using support::Outcome;
using support::routerelay;
using support::values;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;

constexpr const char* kQuick = " --repeat 1";

class CliTrace : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new support::TempFolder;
    path = folder->file("trace.safetensors");
    support::write_trace(path, 4096, 4);
  }
  static void TearDownTestSuite() { delete folder; }
  static support::TempFolder* folder;
  static std::string path;
};
support::TempFolder* CliTrace::folder = nullptr;
std::string CliTrace::path;

TEST_F(CliTrace, RunGivesSpeedupDensityMassOfEveryLayer) {
  const auto j = json_of("run", path + kQuick);
  for (const char* name : {"speedup", "density", "layer_density", "error_rms", "error_max", "scored_share"}) {
    EXPECT_THAT(values(j, name, {{"preset", "balanced"}, {"scope", "layer"}}), SizeIs(4)) << name;
    EXPECT_THAT(values(j, name, {{"scope", "routed"}}), SizeIs(1)) << name;
    EXPECT_THAT(values(j, name, {{"scope", "all"}}), SizeIs(1)) << name;
  }
  EXPECT_THAT(values(j, "time", {{"scope", "layer"}, {"layer", 3}, {"layer_kind", "relayed"}}), SizeIs(6));
  EXPECT_EQ(values(j, "density", {{"scope", "layer"}, {"layer", 1}, {"layer_kind", "dense"}}),
            std::vector<double>{1});
  EXPECT_EQ(values(j, "error_max", {{"scope", "layer"}, {"layer", 1}}), std::vector<double>{0});
  EXPECT_THAT(values(j, "density", {{"scope", "routed"}}), Each(Lt(0.5)));
  EXPECT_THAT(values(j, "mass", {{"scope", "routed"}}), Each(Gt(0.7)));
  EXPECT_THAT(values(j, "error_rms", {{"scope", "routed"}}), Each(Gt(0)));
}

TEST_F(CliTrace, ExactIsDense) {
  const auto j = json_of("run", path + kQuick + " --preset exact");
  EXPECT_EQ(values(j, "density", {{"scope", "all"}}), std::vector<double>{1});
  EXPECT_EQ(values(j, "error_max", {{"scope", "all"}}), std::vector<double>{0});
  EXPECT_THAT(values(j, "mass", nlohmann::json::object()), SizeIs(0))
      << "nothing was routed, nothing audited";
}

TEST_F(CliTrace, ChunksThatAreMultiplesOfARowChangeNothing) {
  const std::string off = kQuick + std::string(" --set relay=off --layers 2");
  const auto whole = json_of("run", path + off), chunked = json_of("run", path + off + " --chunk 2048");
  for (const char* name : {"density", "error_rms", "error_max"})
    EXPECT_NEAR(values(whole, name, {{"scope", "routed"}})[0],
                values(chunked, name, {{"scope", "routed"}})[0], 1e-9)
        << name;
}

TEST_F(CliTrace, RunPrintsATable) {
  const Outcome o = routerelay("run " + path + kQuick + " --layers 2,3 --audit 0");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_THAT(o.out, HasSubstr("structured, layers 4, q [4096, 2, 64] from position 0, k [4096, 1, 64] f16"));
  EXPECT_THAT(o.out, HasSubstr("routed  2 layers"));
  for (const char* column :
       {"kind", "density", "of layer", "mass", "ids", "scored", "speedup", "layer ms", "err"})
    EXPECT_THAT(o.out, HasSubstr(std::string("\n") + column + " ")) << "in the legend";
  EXPECT_THAT(o.out, ::testing::Not(HasSubstr("nan")));
}

TEST_F(CliTrace, AbsentLayersAreNamed) {
  const Outcome o = routerelay("run " + path + " --layers 2,9");
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "routerelay: layers: 9 is not in the trace; it has 1, 2, 3, 4\n");
  EXPECT_EQ(routerelay("explain " + path + " --layer 2 --head 7").err,
            "routerelay: head is 7; layer 2 has 0 to 1\n");
  EXPECT_EQ(routerelay("explain " + path + " --layer 2 --row 64").err,
            "routerelay: row is 64; the trace has 0 to 63\n");
}

TEST_F(CliTrace, CompareIsRoutersTimesSelections) {
  const auto j = json_of("compare", path + " --layers 2 --routers centroid,sampled --selections top_k,top_p");
  for (const char* router : {"centroid", "sampled"})
    for (const char* selection : {"top_k", "top_p"})
      for (const char* name : {"density", "mass", "error_rms", "speedup"})
        EXPECT_THAT(values(j, name, {{"router", router}, {"selection", selection}}), SizeIs(1));
  const Outcome none = routerelay("compare " + path + " --layers 1");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("compare: no layer was routed"));
}

TEST_F(CliTrace, ExplainAccountsForAllOfTheMass) {
  const auto j = json_of("explain", path + " --layer 3 --head 1 --row 50");
  const std::vector<double> mass = values(j, "block_mass", {{"layer", 3}, {"head", 1}, {"row", 50}});
  ASSERT_THAT(mass, SizeIs(51));
  EXPECT_NEAR(std::accumulate(mass.begin(), mass.end(), 0.0), 1, 1e-6);
  EXPECT_THAT(values(j, "block_mass", {{"why", "sink"}, {"block", 0}}), SizeIs(1));
  EXPECT_THAT(values(j, "block_mass", {{"why", "diagonal"}, {"block", 50}}), SizeIs(1));
  double picked = 0;
  for (const char* why : {"sink", "diagonal", "local", "score"})
    for (double m : values(j, "block_mass", {{"why", why}})) picked += m;
  EXPECT_NEAR(values(j, "mass", {{"row", 50}})[0], picked, 1e-9);
  EXPECT_THAT(routerelay("explain " + path + " --layer 3").out,
              HasSubstr("relay screen: scored against the route of layer 2"));
  EXPECT_THAT(routerelay("explain " + path + " --layer 2").out,
              HasSubstr("every visible block was scored (first)"));
  EXPECT_THAT(routerelay("explain " + path + " --layer 3 --row 3").out,
              HasSubstr("dense: 256 visible keys are fewer than 2048"));
}

}  // namespace
}  // namespace routerelay
