// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace ronda::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class TemporaryFolderTest : public ::testing::Test {
 protected:
  TemporaryFolderTest() {
    const char* const before = std::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    setenv("TMPDIR", ::testing::TempDir().c_str(), 1);
  }
  ~TemporaryFolderTest() override { before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1); }

  std::string before_;
};

TEST_F(TemporaryFolderTest, FolderGoesWithItsFilesUnlessItIsKept) {
  for (const bool is_kept : {false, true}) {
    std::unique_ptr<TemporaryFolder> folder = *TemporaryFolder::Create();
    const std::string file = folder->PathOf("file");
    EXPECT_THAT(file, StartsWith(::testing::TempDir()));
    std::ofstream(file) << "text";
    if (is_kept) folder->Keep();
    const std::string path = folder->path();
    folder.reset();
    EXPECT_EQ(std::filesystem::exists(file), is_kept);
    EXPECT_EQ(std::filesystem::exists(path), is_kept);
    std::filesystem::remove_all(path);
  }
}

TEST_F(TemporaryFolderTest, VariableThatNamesNoFolderIsAnError) {
  setenv("TMPDIR", "/no/such/folder", 1);
  EXPECT_THAT(TemporaryFolder::Create().status().message(), HasSubstr("TMPDIR is no folder: set it to"));
}

}  // namespace
}  // namespace ronda::bench
