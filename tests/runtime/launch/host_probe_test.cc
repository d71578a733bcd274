#include "runtime/launch/host_probe.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/version.h"

namespace ronda {
namespace {

using ::testing::EndsWith;

TEST(HostProbeTest, KnowsItsHost) {
  const HostFacts facts = LocalFacts();
  EXPECT_EQ(FactOr(facts, fact::kVersion), kVersion);
  EXPECT_THAT(FactOr(facts, fact::kProgram), EndsWith("host_probe_test"));
  EXPECT_GE(NumberOf(facts, fact::kCores), 1);
  EXPECT_GT(NumberOf(facts, fact::kMemory), 1 << 20);
  EXPECT_GE(NumberOf(facts, fact::kShmSize), NumberOf(facts, fact::kShmFree));
}

TEST(HostProbeTest, MpiSaysItsVersionInItsOwnWay) {
  EXPECT_EQ(ShortMpiVersion("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n"), "Open MPI 4.1.4");
  EXPECT_EQ(ShortMpiVersion("HYDRA build details:\n    Version:           4.0.2\n    Release Date: Thu\n"),
            "MPICH 4.0.2");
  EXPECT_EQ(ShortMpiVersion("HYDRA build details:\n"), "MPICH");
  EXPECT_EQ(ShortMpiVersion("Another MPI 1.0\nmore"), "Another MPI 1.0");
  EXPECT_EQ(ShortMpiVersion(""), "");
}

}  // namespace
}  // namespace ronda
