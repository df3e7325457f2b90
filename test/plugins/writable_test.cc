// SPDX-License-Identifier: Apache-2.0
// Where a report or a trace goes: a file in full, never something that is none.
#include "writable.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "trace/files.h"

namespace routerelay::ggml {
namespace {

namespace fs = std::filesystem;

class Writable : public testing::Test {
 protected:
  support::TempFolder folder_;
  std::string file_ = fs::canonical(folder_.file("")).string() + "/report.json";
};

TEST_F(Writable, AFileThatIsThereOrNot) {
  EXPECT_EQ(writable(file_), file_);
  EXPECT_FALSE(fs::exists(file_)) << "tried, not written";
  support::write_bytes(file_, "old");
  EXPECT_EQ(writable(file_), file_);
  EXPECT_EQ(support::read_bytes(file_), "old");
}

TEST_F(Writable, ALinkIsFollowed) {
  const std::string link = folder_.file("link.json");
  fs::create_symlink(file_, link);
  EXPECT_EQ(writable(link), file_) << "to nothing yet";
  support::write_bytes(file_, "old");
  EXPECT_EQ(writable(link), file_);
  const std::string round = folder_.file("round.json");
  fs::create_symlink(round, round);
  EXPECT_EQ(writable(round), "");
}

TEST_F(Writable, ARelativePathStaysWhereItWas) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.file(""));
  const std::string whole = writable("report.json");
  fs::current_path(before);
  EXPECT_EQ(whole, file_);
}

TEST_F(Writable, NothingElseIsReplaced) {
  const std::string pipe = folder_.file("pipe"), link = folder_.file("null.json");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("/dev/null", link);
  for (const std::string& path :
       {pipe, link, std::string("/dev/null"), folder_.file(""), folder_.file("no/r.json")})
    EXPECT_EQ(writable(path), "") << path;
}

}  // namespace
}  // namespace routerelay::ggml
