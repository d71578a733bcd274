// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class NcclLibraryTest : public ::testing::Test {
 protected:
  void TearDown() override { testing::SetFakeNcclFaults(testing::kNoFaults); }

  static void SetVersion(int version) {
    fake_nccl_faults faults = testing::kNoFaults;
    faults.version = version;
    testing::SetFakeNcclFaults(faults);
  }
};

TEST_F(NcclLibraryTest, VersionsReadAsNvidiaWritesThem) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21400), "2.14.0");
  EXPECT_EQ(NcclVersionText(2805), "2.8.5");
}

TEST_F(NcclLibraryTest, LoadsTheFileOfAPath) {
  const auto library = LoadNccl(testing::kFakeNcclPath);
  ASSERT_EQ(library.status(), absl::OkStatus());
  EXPECT_EQ((*library)->version, "2.28.9");
  EXPECT_THAT((*library)->path, EndsWith("libfake_nccl.so"));
  int version = 0;
  EXPECT_EQ((*library)->functions.GetVersion(&version), NcclResult::kSuccess);
  EXPECT_EQ(version, 22809);
  EXPECT_NE((*library)->functions.CommAbort, nullptr);
}

TEST_F(NcclLibraryTest, OldOneIsRefusedWithBothVersions) {
  SetVersion(20708);
  const absl::Status status = LoadNccl(testing::kFakeNcclPath).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libfake_nccl.so"), HasSubstr("2.7.8"), HasSubstr("2.14.0")));
}

TEST_F(NcclLibraryTest, OldestThatIsUsedIsLoaded) {
  SetVersion(kOldestNccl);
  EXPECT_EQ(LoadNccl(testing::kFakeNcclPath).status(), absl::OkStatus());
}

TEST_F(NcclLibraryTest, OtherLibraryIsNotTakenForNccl) {
  const absl::Status status = LoadNccl("libm.so.6").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libm.so.6 is not NCCL"));
}

TEST_F(NcclLibraryTest, MissingOneIsNamedWithTheRemedy) {
  const absl::Status status = LoadNccl("/nowhere/libnccl.so.2").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("RONDA_NCCL_LIBRARY")));
}

// The search for NCCL asks the dynamic loader first, and then looks in the CUDA toolkit and in the other folders. This
// test needs a machine whose loader finds no NCCL.
TEST_F(NcclLibraryTest, ToolkitsFolderIsLookedAt) {
  if (dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "the loader finds an NCCL";
  const std::filesystem::path home = std::filesystem::path(::testing::TempDir()) / "toolkit";
  std::filesystem::create_directories(home / "lib64");
  std::filesystem::remove(home / "lib64" / "libnccl.so.2");
  std::filesystem::create_symlink(std::filesystem::absolute(testing::kFakeNcclPath), home / "lib64" / "libnccl.so.2");
  const auto library = LoadNccl("", home);
  ASSERT_EQ(library.status(), absl::OkStatus());
  int version = 0;
  EXPECT_EQ((*library)->functions.GetVersion(&version), NcclResult::kSuccess);
  EXPECT_THAT((*library)->path, AnyOf(HasSubstr("toolkit/lib64"), EndsWith("libfake_nccl.so")));
}

// PyTorch's packages install NCCL into the virtual environment.
TEST_F(NcclLibraryTest, PackagesOfAVirtualEnvironmentAreLookedAtBehindWhatIsNamedAndAheadOfTheSystems) {
  const std::vector<std::string> places = NcclPlaces("", "/opt/cuda", "/home/me/env");
  const auto at = [&](const std::string& place) {
    return std::find(places.begin(), places.end(), place) - places.begin();
  };
  EXPECT_EQ(at("libnccl.so.2"), 0);
  const auto environment = at("/home/me/env/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2");
  EXPECT_LT(at("/opt/cuda/lib64/libnccl.so.2"), environment);
  EXPECT_LT(environment, at("/usr/local/cuda/lib64/libnccl.so.2"));
  EXPECT_LT(at("/usr/local/cuda/lib64/libnccl.so.2"), static_cast<ptrdiff_t>(places.size()));
  EXPECT_THAT(NcclPlaces("/my/libnccl.so.2", "/opt/cuda", "/home/me/env"), ElementsAre("/my/libnccl.so.2"));
}

TEST_F(NcclLibraryTest, PlacesLookedAtAreListed) {
  const absl::Status status = LoadNccl("", "/nowhere/cuda", "/nowhere/python").status();
  if (status.ok()) GTEST_SKIP() << "this machine has an NCCL";
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("libnccl.so.2: "), HasSubstr("/nowhere/cuda/lib64/libnccl.so.2"),
            HasSubstr("/nowhere/python/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2"),
            HasSubstr("/usr/local/cuda/lib64/libnccl.so.2"), HasSubstr("python3*/*-packages/nvidia/nccl/lib/")));
}

// Loading the real NCCL needs no CUDA driver.
TEST_F(NcclLibraryTest, NcclOfThisMachineHasAllFunctions) {
  const auto library = LoadNccl("");
  if (library.status().code() == absl::StatusCode::kNotFound) GTEST_SKIP() << library.status();
  ASSERT_EQ(library.status(), absl::OkStatus());
  std::cout << (*library)->path << ", NCCL " << (*library)->version << "\n";
  EXPECT_STREQ((*library)->functions.GetErrorString(NcclResult::kSuccess), "no error");
  EXPECT_STREQ((*library)->functions.GetErrorString(NcclResult::kInProgress), "NCCL operation in progress");
}

}  // namespace
}  // namespace ronda
