// SPDX-License-Identifier: Apache-2.0
// Exit codes and messages: 0 for help, 2 and one sentence for wrong usage, 1 and one sentence for work that failed.
#include <gmock/gmock.h>

#include <algorithm>

#include "cli/command_line.h"

namespace routerelay {
namespace {

using support::Outcome;
using support::routerelay;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_usage(const std::string& arguments, const std::string& message) {
  const Outcome o = routerelay(arguments);
  EXPECT_EQ(o.code, 2) << arguments;
  EXPECT_EQ(o.out, "") << arguments;
  EXPECT_EQ(o.err, "routerelay: " + message + "\n");
}

void expect_failure(const std::string& arguments, const std::string& message,
                    const std::string& environment = "") {
  const Outcome o = routerelay(arguments, environment);
  EXPECT_EQ(o.code, 1) << arguments;
  EXPECT_EQ(o.out, "") << arguments;
  EXPECT_EQ(o.err, "routerelay: " + message + "\n");
}

TEST(CliUsage, HelpAndVersionAreAnswers) {
  const Outcome help = routerelay("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"info", "run", "compare", "explain", "bench", "reproduce"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const Outcome sub = routerelay(std::string(command) + " --help");
    EXPECT_EQ(sub.code, 0);
    EXPECT_THAT(sub.out, HasSubstr("--json"));
  }
  const Outcome version = routerelay("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out, RR_VERSION "\n");
}

TEST(CliUsage, WrongUsageIsTwo) {
  expect_usage("", "A subcommand is required; see 'routerelay --help'");
  expect_usage("frob", "command is 'frob'; legal: info, run, compare, explain, bench, reproduce");
  expect_usage("run", "TRACE is required; see 'routerelay run --help'");
  expect_usage(
      "run t --preset quick",
      "--preset: options: preset is 'quick'; legal: exact, careful, balanced, fast; see 'routerelay run "
      "--help'");
  expect_usage("run t --set selection.p",
               "--set: 'selection.p' has no '='; expected KEY=VALUE, as selection.p=0.95; see 'routerelay "
               "run --help'");
  expect_usage("run t --set selection.p=2",
               "options: selection.p is 2; legal: 0 to 1; see 'routerelay run --help'");
  expect_usage("info --quick",
               "The following argument was not expected: --quick; see 'routerelay info --help'");
  EXPECT_EQ(routerelay("frob").code, 2);
  EXPECT_EQ(routerelay("run t --threads 0").code, 2);
  EXPECT_EQ(routerelay("run t --repeat x").code, 2);
  EXPECT_EQ(routerelay("run t --isa sse").code, 2);
  EXPECT_EQ(routerelay("bench speed").code, 2);
  EXPECT_EQ(routerelay("bench layer --q-heads 3 --kv-heads 2").code, 2);
  EXPECT_EQ(routerelay("compare t --routers oracle").code, 2);
  EXPECT_EQ(routerelay("compare t --relays certify --selections top_p").code, 2);
  EXPECT_EQ(routerelay("explain t").code, 2);
  EXPECT_EQ(routerelay("reproduce flash").code, 2);
}

TEST(CliUsage, FailedWorkIsOne) {
  support::TempFolder folder;
  const std::string path = folder.file("t");
  for (const std::string command : {"run ", "compare ", "explain --layer 2 "}) {
    expect_failure(command + path, "trace: " + path + ": cannot open: No such file or directory");
    expect_failure(command + "/tmp", "trace: /tmp: not a regular file");
  }
  expect_failure("info", "environment: ROUTERELAY_ISA is 'sse'; legal: scalar, avx2, avx512, avx512bf16, amx",
                 "ROUTERELAY_ISA=sse");
  const Outcome misspelt = routerelay("bench peak", "ROUTERELAY_IAS=avx2");
  EXPECT_EQ(misspelt.code, 1);
  EXPECT_EQ(misspelt.out, "");
  EXPECT_THAT(misspelt.err,
              HasSubstr("environment: ROUTERELAY_IAS is no variable; legal: ROUTERELAY_BACKEND, "));
}

TEST(CliUsage, CudaAttendNeedsAGpuAndABuildForIt) {
  const Outcome o = routerelay("bench cuda-attend --case dense-8k", "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, StartsWith("routerelay: bench cuda-attend: "));
  EXPECT_THAT(o.err,
              ::testing::AnyOf(HasSubstr("this build has no CUDA back end; ./dev build cuda makes one"),
                               HasSubstr("cuda: cudaGetDevice")));
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1);
  EXPECT_EQ(routerelay("bench cuda-attend --case dense-9k").code, 2);
}

TEST(CliUsage, TheDefaultPresetIsTheVariables) {
  const Outcome off = routerelay("run t", "ROUTERELAY_PRESET=off");
  EXPECT_EQ(off.code, 2);
  EXPECT_THAT(off.err,
              HasSubstr("environment: ROUTERELAY_PRESET, which --preset overrides: options: preset is "
                        "'off'; legal: exact, careful, balanced, fast;"));
  EXPECT_EQ(routerelay("bench layer", "ROUTERELAY_PRESET=off").code, 2);
  EXPECT_EQ(routerelay("run t --preset fast", "ROUTERELAY_PRESET=off").code, 1);  // no trace of that name
  EXPECT_THAT(routerelay("explain --help", "ROUTERELAY_PRESET=careful").out, HasSubstr("=careful"));
  EXPECT_THAT(routerelay("run --help").out, HasSubstr("=balanced"));
}

TEST(CliUsage, ATruncatedTraceFails) {
  support::TempFolder folder;
  const std::string path = folder.file("t");
  support::write_trace(path, 256, 2);
  const std::string whole = support::read_bytes(path);
  support::write_bytes(path, whole.substr(0, whole.size() - 1));
  const Outcome o = routerelay("run " + path);
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err,
              StartsWith("routerelay: trace: " + path + ": header: tensor \"layers.2.v\" ends at data byte"));
  EXPECT_THAT(o.err, HasSubstr("was it cut short?"));
}

TEST(CliUsage, AFullDiskIsSaid) {
  support::TempFolder folder;
  const int status = std::system(("'" RR_CLI "' info >/dev/full 2>" + folder.file("err")).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(support::read_bytes(folder.file("err")), "routerelay: cannot write to standard output\n");
}

TEST(CliUsage, InfoNamesTheMachine) {
  const auto j = support::json_of("info", "");
  EXPECT_EQ(support::values(j, "preset", {{"preset", "balanced"}, {"router", "sampled"}}).size(), 1u);
  EXPECT_EQ(support::values(j, "isa_available", {{"isa", "scalar"}}), std::vector<double>{1});
  const Outcome text = routerelay("info", "ROUTERELAY_ISA=scalar");
  EXPECT_THAT(text.out, HasSubstr("uses scalar (ROUTERELAY_ISA=scalar)"));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("\x1b"))) << "no escapes when piped";
}

}  // namespace
}  // namespace routerelay
