// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/preflight/build_report.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/backends/registry.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

OptionalParts Nothing() {
  return {.open_mpi = absl::NotFoundError("no libronda_mpi.so"),
          .mpich = absl::NotFoundError("no libronda_mpi_mpich.so"),
          .hosts = absl::NotFoundError("no libronda_hosts.so"),
          .cuda = absl::UnavailableError("no CUDA device"),
          .nccl = absl::NotFoundError("no libnccl.so.2"),
          .mpirun = absl::NotFoundError("no mpirun")};
}

TEST(BuildReportTest, SaysWhatIsInTheBuild) {
  EXPECT_THAT(BuildReport(Nothing()), AllOf(StartsWith("Ronda " + std::string(kVersion) + "\n"), HasSubstr("[X] shm "),
                                            HasSubstr("[X] rondarun ")));
}

// rondarun has its own list of backends, because linking the registry of backends would link the whole runtime.
TEST(BuildReportTest, ListsEveryBackendOfTheRegistry) {
  std::vector<absl::string_view> names = HostBackendNames();
  for (const absl::string_view name : DeviceBackendNames()) names.push_back(name);
  for (const absl::string_view name : names) {
    // The report lists the two backends that a hierarchical backend consists of.
    if (absl::StartsWith(name, "hierarchical")) continue;
    EXPECT_THAT(BuildReport(Nothing()), HasSubstr(absl::StrCat("] ", name, " "))) << name;
  }
}

TEST(BuildReportTest, SaysWhyAPartIsNotThere) {
  EXPECT_THAT(BuildReport(Nothing()), AllOf(HasSubstr("\n    [ ] mpi          no libronda_mpi.so\n"),
                                            HasSubstr("\n    [ ] mpi (MPICH)  no libronda_mpi_mpich.so\n"),
                                            HasSubstr("\n    [ ] nccl         no libnccl.so.2\n"),
                                            HasSubstr("\n    [ ] tcp          no libronda_hosts.so\n"),
                                            HasSubstr("\n    [ ] cuda         no CUDA device\n"),
                                            HasSubstr("\n    [ ] mpirun       no mpirun\n")));
}

TEST(BuildReportTest, SaysWhichLibraryAPartIs) {
  EXPECT_THAT(
      BuildReport({.open_mpi = std::string("Open MPI v4.1.4"),
                   .mpich = std::string("MPICH 4.0.2"),
                   .hosts = std::string("gRPC 1.51.1"),
                   .cuda = std::string("1 device: NVIDIA H200 (CUDA runtime 13.0, driver 13.0)"),
                   .nccl = std::string("2.18.5"),
                   .mpirun = std::string("Open MPI 4.1.4")}),
      AllOf(HasSubstr("[X] mpi          ranks on several hosts, under Open MPI's mpirun: Open MPI v4.1.4\n"),
            HasSubstr("[X] mpi (MPICH)  the same under MPICH's: MPICH 4.0.2\n"),
            HasSubstr("[X] nccl         tensors in the memory of GPUs, one a rank: 2.18.5\n"),
            HasSubstr("[X] tcp          ranks on several hosts, however they are started: gRPC 1.51.1\n"),
            HasSubstr("[X] cuda         NVIDIA's GPUs: 1 device: NVIDIA H200 (CUDA runtime 13.0, driver 13.0)\n"),
            HasSubstr("[X] mpirun       ranks on several hosts: Open MPI 4.1.4\n")));
}

TEST(BuildReportTest, LooksForThePartsOfThisHost) {
  const OptionalParts parts = FindOptionalParts(ProcessEnvironment());
  for (const auto& part : {parts.open_mpi, parts.mpich, parts.hosts, parts.cuda, parts.nccl, parts.mpirun}) {
    EXPECT_FALSE(part.ok() ? part->empty() : part.status().message().empty());
  }
}

// Open MPI and MPICH define the same symbols, which their plugins make global.
TEST(BuildReportTest, EachMpiIsAskedForItsOwnName) {
  const OptionalParts parts = FindOptionalParts(ProcessEnvironment());
  ASSERT_TRUE(parts.open_mpi.ok()) << parts.open_mpi.status();
  ASSERT_TRUE(parts.mpich.ok()) << parts.mpich.status();
  EXPECT_THAT(*parts.open_mpi, StartsWith("Open MPI v"));
  EXPECT_THAT(*parts.mpich, StartsWith("MPICH "));
}

TEST(BuildReportTest, DevicesAreThoseOfTheGivenPlugin) {
  const OptionalParts parts = FindOptionalParts([](const char* name) {
    return name == std::string("RONDA_CUDA_PLUGIN") ? std::optional<std::string>("/nowhere/libronda_cuda.so")
                                                    : std::nullopt;
  });
  EXPECT_THAT(std::string(parts.cuda.status().message()), HasSubstr("/nowhere/libronda_cuda.so"));
}

}  // namespace
}  // namespace ronda
