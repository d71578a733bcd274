// SPDX-License-Identifier: Apache-2.0

// Tests jobs that are started by the launcher of an MPI, on one host and on two hosts. The two hosts are two sets of
// processes, each with its own /dev/shm.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/backends/left_ranks.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using testing::HasMpirun;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProcessResult;
using testing::RunUnderMpirun;

// -- Programs of ranks --

int FromEnvironment(const char* name) {
  int value = -1;
  EXPECT_TRUE(absl::SimpleAtoi(std::getenv(name), &value)) << name;
  return value;
}

// Checks a sum that is exact in any order.
void AddUp(const std::string& name, size_t count) {
  std::vector<float> data(count, static_cast<float>(rank() + 1));
  allreduce(tensor(name, data), {Op::Sum});
  const auto sum = static_cast<float>(size() * (size() + 1) / 2);
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [sum](float value) { return value == sum; })) << name;
}

void Train() {
  init();
  EXPECT_EQ(local_size(), FromEnvironment("EXPECTED_LOCAL_SIZE"));
  EXPECT_EQ(cross_size(), size() / local_size());
  for (int step = 0; step < 12; ++step) {
    for (const size_t count : {1, 1000, 300000}) AddUp(absl::StrCat("gradient", count), count);
  }
  EXPECT_GT(statistics().schedule_rounds, 0U);
  const int32_t own = 100 + rank();
  const std::vector<int32_t> all = allgather("ranks", &own, {1});
  for (int i = 0; i < size(); ++i) EXPECT_EQ(all[static_cast<size_t>(i)], 100 + i);
  std::printf("rank %d of %d has trained\n", rank(), size());
  shutdown();
}

// -- The tests --

struct Mpi {
  MpiFlavor flavor;
  const char* name;
  // Settings that keep the MPI from using /dev/shm, which is different on the two hosts.
  std::vector<std::string> network_only;
};

const Mpi kOpenMpi = {MpiFlavor::kOpenMpi, "OpenMpi", {"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp"}};
const Mpi kMpich = {MpiFlavor::kMpich, "Mpich", {"MPIR_CVAR_NOLOCAL=1"}};

std::ostream& operator<<(std::ostream& out, const Mpi& mpi) { return out << mpi.name; }

class MpirunJobTest : public ::testing::TestWithParam<Mpi> {
 protected:
  void SetUp() override {
    if (!HasMpirun(GetParam().flavor)) GTEST_SKIP() << "its mpirun is not installed";
  }

  // Returns the command line of a rank. The command sets the variables in `settings`, and unsets those that
  // RunProcesses has set.
  static std::vector<std::string> RankWith(std::vector<std::string> settings, const std::string& program) {
    std::vector<std::string> argv = {"/usr/bin/env", "-u", "RONDA_RANK", "-u", "RONDA_SIZE", "-u", "RONDA_JOB_ID"};
    argv.insert(argv.end(), settings.begin(), settings.end());
    argv.push_back(absl::StrCat("RONDA_MPI_PLUGIN=", Plugin()));
    argv.push_back("RONDA_LOG_LEVEL=info");
    argv.push_back(std::filesystem::read_symlink("/proc/self/exe"));
    argv.push_back(absl::StrCat("--rank_program=", program));
    return argv;
  }

  static std::string Plugin() {
    return std::filesystem::absolute(absl::StrCat("runtime/mpi/", PluginName(GetParam().flavor)));
  }
};

INSTANTIATE_TEST_SUITE_P(Mpis, MpirunJobTest, ::testing::Values(kOpenMpi, kMpich),
                         [](const auto& info) { return info.param.name; });

void ExpectAllTrained(const ProcessResult& result, int size) {
  EXPECT_EQ(result.exit_code, 0) << "signal " << result.signal << ", said:\n" << result.output;
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_THAT(result.output, HasSubstr(absl::StrCat("rank ", rank, " of ", size, " has trained")));
  }
}

TEST_P(MpirunJobTest, RanksOnOneHostTrainInSharedMemory) {
  const ProcessResult result = RunUnderMpirun(GetParam().flavor, 2, RankWith({"EXPECTED_LOCAL_SIZE=2"}, "train"));
  ExpectAllTrained(result, 2);
  EXPECT_THAT(result.output, Not(HasSubstr("data goes over mpi")));
}

TEST_P(MpirunJobTest, BackendOfMpiIsUsedOnOneHostIfAskedFor) {
  const ProcessResult result =
      RunUnderMpirun(GetParam().flavor, 3, RankWith({"EXPECTED_LOCAL_SIZE=3", "RONDA_BACKEND=mpi"}, "train"));
  ExpectAllTrained(result, 3);
  EXPECT_THAT(result.output, HasSubstr("data goes over mpi, as RONDA_BACKEND says"));
}

// The second host is a mount namespace whose /dev/shm is a directory of the test. Ronda treats it as another host.
class TwoHostsJobTest : public MpirunJobTest {
 protected:
  void SetUp() override {
    MpirunJobTest::SetUp();
    if (IsSkipped()) return;
    if (std::system("unshare --mount true 2>/dev/null") != 0) GTEST_SKIP() << "mount namespaces need root";
    std::filesystem::create_directories(SharedMemoryOfSecondHost());
  }
  ~TwoHostsJobTest() override { std::filesystem::remove_all(SharedMemoryOfSecondHost()); }

  static std::string SharedMemoryOfSecondHost() {
    return absl::StrCat(::testing::TempDir(), "/second_host_", getpid(), "_", GetParam().name);
  }

  // Runs `size` ranks. A rank is on the first host if `is_on_first`, a condition for test(1), is true for its $rank.
  static ProcessResult Run(int size, const std::string& is_on_first, std::vector<std::string> settings,
                           const std::string& program) {
    for (const std::string& setting : GetParam().network_only) settings.push_back(setting);
    // mpirun treats all ranks as ranks of one host. RONDA_MPI=1 keeps them from trying to meet in shared memory.
    settings.push_back("RONDA_MPI=1");
    std::vector<std::string> argv = {
        "/bin/sh", "-c",
        absl::StrCat("rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; [ ", is_on_first,
                     " ] && exec \"$@\"; exec unshare --mount --propagation private /bin/sh -c 'mount --bind ",
                     SharedMemoryOfSecondHost(), " /dev/shm && exec \"$@\"' sh \"$@\""),
        "sh"};
    const std::vector<std::string> rank = RankWith(std::move(settings), program);
    argv.insert(argv.end(), rank.begin(), rank.end());
    return RunUnderMpirun(GetParam().flavor, size, argv);
  }

  // Runs four ranks on two hosts with these settings. Rank 3 ends silently, and the other ranks must print a failure
  // that names rank 3.
  static void ExpectLastRankToBeNamed(std::vector<std::string> settings) {
    const std::string words = absl::StrCat(SharedMemoryOfSecondHost(), "/words");
    std::filesystem::create_directories(words);
    settings.push_back(absl::StrCat("WORDS=", words));
    const ProcessResult result = Run(4, "$rank -lt 2", std::move(settings), "is_left");
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(result.output, HasSubstr(absl::StrCat("rank ", rank, " was told: rank 3 (host ")));
    }
    EXPECT_THAT(result.output, HasSubstr("ended without shutdown()"));
    EXPECT_THAT(result.output, Not(HasSubstr("Failure"))) << "of an expectation";
  }
};

INSTANTIATE_TEST_SUITE_P(Mpis, TwoHostsJobTest, ::testing::Values(kOpenMpi, kMpich),
                         [](const auto& info) { return info.param.name; });

TEST_P(TwoHostsJobTest, TwoRanksOnEachTrainInTwoLevels) {
  const ProcessResult result = Run(4, "$rank -lt 2", {"EXPECTED_LOCAL_SIZE=2"}, "train");
  ExpectAllTrained(result, 4);
  EXPECT_THAT(result.output, HasSubstr("data goes over hierarchical-mpi;"));
}

// In the order of the hosts, the ranks with local rank 0 are 0 and 1, and the ranks with local rank 1 are 3 and 2.
TEST_P(TwoHostsJobTest, RanksOnHostsInAnyOrderTrainInTwoLevels) {
  const ProcessResult result = Run(4, "$rank -eq 0 -o $rank -eq 3", {"EXPECTED_LOCAL_SIZE=2"}, "train");
  ExpectAllTrained(result, 4);
  EXPECT_THAT(result.output, HasSubstr("data goes over hierarchical-mpi;"));
}

TEST_P(TwoHostsJobTest, OneRankOnEachTrainsOverMpi) {
  const ProcessResult result = Run(2, "$rank -lt 1", {"EXPECTED_LOCAL_SIZE=1"}, "train");
  ExpectAllTrained(result, 2);
  EXPECT_THAT(result.output, HasSubstr("data goes over mpi;"));
}

TEST_P(TwoHostsJobTest, ControlMessagesGoOverMpiIfAskedFor) {
  // No network interface has the name "none", so Ronda cannot make its own connections.
  const std::vector<std::string> settings = {"RONDA_CONTROL=mpi", "RONDA_NETWORK_INTERFACE=none"};
  std::vector<std::string> two_a_host = settings;
  two_a_host.push_back("EXPECTED_LOCAL_SIZE=2");
  const ProcessResult result = Run(4, "$rank -lt 2", two_a_host, "train");
  ExpectAllTrained(result, 4);
  EXPECT_THAT(result.output, HasSubstr("control messages go over MPI"));
  std::vector<std::string> one_a_host = settings;
  one_a_host.push_back("EXPECTED_LOCAL_SIZE=1");
  ExpectAllTrained(Run(2, "$rank -lt 1", one_a_host, "train"), 2);
}

TEST_P(TwoHostsJobTest, RankThatGivesUpIsNamedOverMpiToo) { ExpectLastRankToBeNamed({"RONDA_CONTROL=mpi"}); }

TEST_P(TwoHostsJobTest, SharedMemoryAcrossHostsIsRefusedOnAllRanks) {
  const ProcessResult result = Run(2, "$rank -lt 1", {"EXPECTED_LOCAL_SIZE=1", "RONDA_BACKEND=shm"}, "train");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("RONDA_BACKEND=\"shm\" cannot carry this job's data: the ranks are on 2 hosts"));
}

TEST_P(TwoHostsJobTest, RankThatGivesUpIsNamedOnBothHostsAndMpiIsLeftAtOnce) { ExpectLastRankToBeNamed({}); }

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  return ronda::testing::RankProgramMain(argc, argv,
                                         {{"train", ronda::Train}, {"is_left", ronda::testing::IsLeftByTheLastRank}});
}
