// SPDX-License-Identifier: Apache-2.0

// Tests reading and writing of whole files.
#include "runtime/base/files.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(FilesTest, AFileIsReadAsItWasWritten) {
  const std::string path = testing::TempDir() + "/files_test";
  const std::string content("a\nb\0c", 5);
  ASSERT_EQ(WriteFile(path, "longer than what replaces it"), absl::OkStatus());
  ASSERT_EQ(WriteFile(path, content), absl::OkStatus());
  const auto read = ReadFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, content);
}

TEST(FilesTest, AFileThatCannotBeReadIsNamedWithTheReason) {
  EXPECT_EQ(ReadFile("/no/such/file").status(), absl::NotFoundError("/no/such/file: No such file or directory"));
  EXPECT_EQ(ReadFile("/").status(), absl::NotFoundError("/: Is a directory"));
}

TEST(FilesTest, AFileThatCannotBeWrittenIsNamedWithTheReason) {
  EXPECT_EQ(WriteFile("/no/such/file", "x"),
            absl::UnavailableError("cannot write /no/such/file: No such file or directory"));
  EXPECT_EQ(WriteFile("/dev/full", "x"), absl::UnavailableError("cannot write /dev/full: No space left on device"));
}

}  // namespace
}  // namespace ronda
