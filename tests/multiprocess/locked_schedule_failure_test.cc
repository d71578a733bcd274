// Ranks that are killed or stopped while their job follows a locked schedule, with real processes.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobResult;
using testing::RunRankProgram;

constexpr milliseconds kNever{1000 * 1000};

// -- What ranks do --

Status Step() {
  float value = static_cast<float>(rank() + 1);
  const Status status = try_allreduce(tensor("gradient", &value), {Op::Sum});
  EXPECT_TRUE(!status.ok() || value == static_cast<float>(size() * (size() + 1) / 2)) << value;
  return status;
}

// Steps until nothing is negotiated any more. The pids of all ranks.
std::vector<int32_t> InitAndLock(milliseconds warning, milliseconds deadline) {
  Options options;
  options.stall_warning = warning;
  options.stall_deadline = deadline;
  init(options);
  const int32_t pid = getpid();
  std::vector<int32_t> pids = allgather("pids", &pid, {1});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Step().message(), "");
  EXPECT_GT(statistics().schedule_rounds, 0U);
  return pids;
}

void AwaitOwnOutput(const std::string& text) {
  std::string output;
  while (!absl::StrContains(output, text)) {
    std::this_thread::sleep_for(milliseconds(5));
    std::ostringstream all;
    all << std::ifstream(std::filesystem::read_symlink("/proc/self/fd/2")).rdbuf();
    output = all.str();
  }
}

void Dies() {
  InitAndLock(kNever, kNever);
  if (rank() == 1) raise(SIGKILL);
  const Status status = Step();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
  std::printf("%s\n", status.message().c_str());
  EXPECT_EQ(try_shutdown().code(), RONDA_ERROR_PEER_FAILED);
}

// Rank 1, until rank 0 has warned of it.
void IsStoppedForAWhile() {
  const std::vector<int32_t> pids = InitAndLock(milliseconds(200), kNever);
  if (rank() == 1) raise(SIGSTOP);
  std::thread continuing;
  if (rank() == 0) {
    continuing = std::thread([&] {
      AwaitOwnOutput("did last");
      kill(pids[1], SIGCONT);
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Step().message(), "");
  if (continuing.joinable()) continuing.join();
  shutdown();
}

// Rank 1, until rank 0 has given up.
void IsStoppedForTooLong() {
  const std::vector<int32_t> pids = InitAndLock(milliseconds(200), milliseconds(500));
  if (rank() == 1) raise(SIGSTOP);
  const Status status = Step();
  if (rank() == 0) kill(pids[1], SIGCONT);
  EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE);
  std::printf("%s\n", status.message().c_str());
  EXPECT_FALSE(try_shutdown().ok());
}

const std::vector<testing::RankProgram> kPrograms = {
    {"Dies", Dies}, {"IsStoppedForAWhile", IsStoppedForAWhile}, {"IsStoppedForTooLong", IsStoppedForTooLong}};

// -- What comes of it --

TEST(LockedScheduleFailureTest, DeathOfARankIsReportedByName) {
  const JobResult result = RunRankProgram("Dies", 3);
  EXPECT_EQ(result.ranks[1].signal, SIGKILL);
  for (const size_t survivor : {0, 2}) {
    EXPECT_EQ(result.ranks[survivor].exit_code, 0) << result.ranks[survivor].output;
    EXPECT_THAT(result.ranks[survivor].output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("died")));
  }
  EXPECT_THAT(result.left_in_shared_memory, IsEmpty());
}

TEST(LockedScheduleFailureTest, RankThatIsStoppedForAWhileIsWarnedOfAndTheJobGoesOn) {
  const JobResult result = RunRankProgram("IsStoppedForAWhile", 2);
  for (const auto& rank : result.ranks) EXPECT_EQ(rank.exit_code, 0) << rank.output;
  EXPECT_THAT(result.ranks[0].output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("'gradient'")));
}

TEST(LockedScheduleFailureTest, RankThatIsStoppedForTooLongFailsTheJobByName) {
  const JobResult result = RunRankProgram("IsStoppedForTooLong", 2);
  for (const auto& rank : result.ranks) EXPECT_EQ(rank.exit_code, 0) << rank.output;
  EXPECT_THAT(result.ranks[0].output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("'gradient'")));
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return ronda::testing::RankProgramMain(argc, argv, ronda::kPrograms); }
