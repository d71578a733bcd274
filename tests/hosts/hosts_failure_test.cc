// SPDX-License-Identifier: Apache-2.0

// Tests jobs on several hosts that lose the connection to a host, or a rank on it.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using testing::HostsJob;
using testing::JobResult;
using testing::NetworkHosts;
using testing::ProcessResult;
using testing::RunProcesses;

constexpr char kNotesVariable[] = "TEST_NOTES";

// -- Programs of ranks --

// Ranks write notes to a directory that the hosts share, because their output would have to pass through the network.
void Record(const std::string& kind, const std::string& text) {
  const std::string path = absl::StrCat(std::getenv(kNotesVariable), "/", rank(), ".", kind);
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
}

// Makes allreduces until one of them fails.
void AddUp() {
  init();
  std::vector<float> data(300'000, 1.0f);
  Status status;
  for (int step = 0; status.ok(); ++step) {
    if (step == 20) Record("pid", absl::StrCat(getpid()));
    status = try_allreduce(tensor("gradient", data), {Op::Average});
  }
  const Status failure = try_barrier();
  Record("failure", failure.message());
  EXPECT_EQ(try_shutdown().message(), failure.message());
  FAIL() << failure.message();
}

// Expects that try_init() and an allreduce succeed; otherwise prints the error.
void StartAndAddUp() {
  std::vector<float> data(1, 1.0f);
  Status status = try_init();
  if (status.ok()) status = allreduce_async(tensor("gradient", data), {Op::Average}).wait();
  EXPECT_TRUE(status.ok()) << status.message();
}

// -- The tests --

constexpr int kRanks = 4;

using HostsApartTest = testing::HostsTest;

// The parameter is the value of RONDA_BACKEND.
class HostsFailureTest : public testing::HostsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    HostsTest::SetUp();
    if (IsSkipped()) return;
    hosts_ = MakeHosts({.count = 2});
    ASSERT_NE(hosts_, nullptr);
    notes_ = absl::StrCat(::testing::TempDir(), "/notes-", getpid());
    std::filesystem::create_directories(notes_);
  }
  void TearDown() override {
    if (!notes_.empty()) std::filesystem::remove_all(notes_);
  }

  // Starts ranks 0 and 1 on the first host, and ranks 2 and 3 on the second.
  std::future<ProcessResult> Start() {
    HostsJob job = RankProgramJob({2, 2}, "add_up");
    job.env.insert(job.env.end(), {{kNotesVariable, notes_},
                                   {"RONDA_HEARTBEAT", "200ms"},
                                   {"RONDA_HEARTBEAT_TIMEOUT", "2s"},
                                   {"RONDA_BACKEND", GetParam()}});
    // Without --enable-recovery, mpirun kills the other ranks before they can report the failure. Even with it,
    // mpirun's helpers sometimes kill the other ranks, but never a process with its own session. With it, mpirun does
    // not exit by itself, and does not always notice that the ranks have ended.
    job.mpirun_options = {"--enable-recovery"};
    job.timeout = absl::Seconds(90);
    const std::string note = absl::StrCat(notes_, "/$OMPI_COMM_WORLD_RANK.exit");
    // mpirun's helpers may end before the rank. So the rank's output goes to a file, and the rank ignores SIGPIPE,
    // which it gets when MPI writes to the helpers.
    const std::string output = absl::StrCat(notes_, "/$OMPI_COMM_WORLD_RANK.output");
    job.argv.insert(job.argv.begin(), {"/usr/bin/setsid", "--wait", "/bin/sh", "-c",
                                       absl::StrCat("trap '' PIPE; \"$@\" > ", output, " 2>&1; echo -n $? > ", note,
                                                    ".new; mv ", note, ".new ", note),
                                       "sh"});
    return std::async(std::launch::async, [this, job = std::move(job)] { return RunAcross(*hosts_, job); });
  }

  // Kills mpirun's helpers on the hosts, so that mpirun exits.
  void Stop(std::future<ProcessResult> job) const {
    for (int host = 0; host < hosts_->count(); ++host) hosts_->KillAllOn(host);
    EXPECT_NE(job.get().exit_code, 0);
  }

  // Waits for a note from the rank and returns it. If there is none in time, fails the test and returns "".
  std::string Await(int rank, const std::string& kind) const {
    constexpr absl::Duration kTimeout = absl::Seconds(40);
    const std::string path = absl::StrCat(notes_, "/", rank, ".", kind);
    for (const absl::Time end = SteadyNow() + kTimeout; SteadyNow() < end; absl::SleepFor(absl::Milliseconds(10))) {
      if (std::filesystem::exists(path)) return Read(rank, kind);
    }
    ADD_FAILURE() << "rank " << rank << " has left no note of its " << kind << "; its output:\n"
                  << Read(rank, "output");
    return "";
  }

  std::string Read(int rank, const std::string& kind) const {
    std::ostringstream text;
    text << std::ifstream(absl::StrCat(notes_, "/", rank, ".", kind)).rdbuf();
    return text.str();
  }

  std::vector<pid_t> AwaitPids() const {
    std::vector<pid_t> pids(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(absl::SimpleAtoi(Await(rank, "pid"), &pids[rank]));
    return pids;
  }

  std::string RanksOn(int host) const { return absl::StrCat("(host ", hosts_->NameOf(host), ", pid "); }

  std::unique_ptr<NetworkHosts> hosts_;
  std::string notes_;
};

TEST_P(HostsFailureTest, RanksNameOneOfTheHostThatIsCutOff) {
  std::future<ProcessResult> job = Start();
  AwaitPids();
  ASSERT_EQ(hosts_->CutOff(1), absl::OkStatus());
  for (int rank : {0, 1}) EXPECT_THAT(Await(rank, "failure"), HasSubstr(RanksOn(1)));
  // The ranks on the second host must report the loss of the ranks on the first host.
  for (int rank : {2, 3}) EXPECT_THAT(Await(rank, "failure"), HasSubstr(RanksOn(0)));
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(Await(rank, "exit"), "1");
  ASSERT_EQ(hosts_->Reconnect(1), absl::OkStatus());
  Stop(std::move(job));
}

TEST_P(HostsFailureTest, RankThatIsKilledOnTheOtherHostIsNamedByAll) {
  std::future<ProcessResult> job = Start();
  const std::vector<pid_t> pids = AwaitPids();
  ASSERT_GT(pids[3], 0);
  ASSERT_EQ(kill(pids[3], SIGKILL), 0);
  for (int rank : {0, 1, 2}) {
    EXPECT_EQ(Await(rank, "exit"), "1") << Read(rank, "output");
    EXPECT_THAT(Await(rank, "failure"), HasSubstr(absl::StrCat("rank 3 ", RanksOn(1), pids[3], ")")));
  }
  EXPECT_EQ(Await(3, "exit"), "137");
  Stop(std::move(job));
}

INSTANTIATE_TEST_SUITE_P(Across, HostsFailureTest, ::testing::Values("hierarchical-mpi", "hierarchical-tcp"),
                         [](const auto& info) { return info.index == 0 ? "Mpi" : "Tcp"; });

// All ranks can reach the first host, so the rendezvous succeeds. But ranks 1 and 2 cannot connect to each other over
// TCP.
TEST_F(HostsApartTest, RanksThatDoNotReachEachOtherEndTheStartOfAll) {
  const std::unique_ptr<NetworkHosts> hosts = MakeHosts({.count = 3});
  ASSERT_NE(hosts, nullptr);
  ASSERT_EQ(hosts->RunOn(1, absl::StrCat("ip route add unreachable ", hosts->AddressOf(2))), absl::OkStatus());
  const std::string command = absl::StrCat(
      "RONDA_RANK=$RONDA_RANK RONDA_SIZE=3 RONDA_JOB_SECRET=sesame RONDA_START_TIMEOUT=4s ",
      "RONDA_MASTER_ADDR=", hosts->AddressOf(0), " RONDA_MASTER_PORT=29500 ", "RONDA_HOSTS_PLUGIN=", HostsPlugin(), " ",
      std::filesystem::read_symlink("/proc/self/exe").string(), " --rank_program=start");
  const JobResult job =
      RunProcesses({.size = 3,
                    .argv = {"/bin/sh", "-c",
                             absl::StrCat("set -- ", hosts->NameOf(0), " ", hosts->NameOf(1), " ", hosts->NameOf(2),
                                          "; shift $RONDA_RANK; exec ", hosts->agent(), " $1 \"", command, "\"")},
                    .timeout = absl::Seconds(30)});
  for (const ProcessResult& rank : job.ranks) {
    EXPECT_EQ(rank.exit_code, 1) << rank.output;
    EXPECT_THAT(rank.output, HasSubstr("has no connections for data"));
  }
}

}  // namespace

std::vector<testing::RankProgram> testing::HostsFailurePrograms() {
  return {{"add_up", AddUp}, {"start", StartAndAddUp}};
}

}  // namespace ronda
