// SPDX-License-Identifier: Apache-2.0

// Tests the search for the MPI plugin, and its errors.
#include "runtime/mpi/mpi_session.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"

namespace ronda {
namespace {

TEST(PluginLibraryTest, MissingPluginIsNamedWithThePathsSearchedAndTheRemedy) {
  const absl::Status status = LoadMpiPlugin(MpiFlavor::kOpenMpi, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  const std::string beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::string& part : {beside + "/libronda_mpi.so", beside + "/../lib/libronda_mpi.so",
                                  std::string("RONDA_MPI_PLUGIN"), std::string("openmpi-bin")}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status << " lacks " << part;
  }
}

TEST(PluginLibraryTest, OtherMpiHasAnotherPluginAndOtherPackages) {
  const absl::Status status = LoadMpiPlugin(MpiFlavor::kMpich, "").status();
  EXPECT_TRUE(absl::StrContains(status.message(), "libronda_mpi_mpich.so")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "libmpich12")) << status;
}

TEST(PluginLibraryTest, GivenPathIsTheOnlyPlace) {
  const absl::Status status = LoadMpiPlugin(MpiFlavor::kOpenMpi, "/nowhere/plugin.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(status.message(), "/nowhere/plugin.so")) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "/libronda_mpi.so")) << status;
}

TEST(PluginLibraryTest, LibraryThatIsNoPluginIsRefused) {
  const absl::Status status = LoadMpiPlugin(MpiFlavor::kOpenMpi, "libm.so.6").status();
  EXPECT_EQ(status, absl::FailedPreconditionError("libm.so.6 is no MPI plugin of Ronda's"));
}

TEST(PluginLibraryTest, PluginOfAnotherVersionIsRefused) {
  const std::string path = std::filesystem::absolute("tests/runtime/mpi/libnext_version.so");
  const absl::Status status = LoadMpiPlugin(MpiFlavor::kOpenMpi, path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "is of version 2, and version 1 is needed")) << status;
}

}  // namespace
}  // namespace ronda
