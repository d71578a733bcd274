// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/job.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/backends/read_config.h"
#include "runtime/base/config.h"
#include "runtime/base/peer.h"
#include "tests/runtime/backends/rank_bodies.h"
#include "tests/testing/message_transports.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::ronda::testing::ExpectRankProgramSucceeds;
using ::ronda::testing::JobResult;
using ::ronda::testing::RunRankProgram;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(JobTest, ProgramWithoutALauncherIsAJobOfOneRank) {
  absl::StatusOr<ConnectedJob> job = ConnectJob(Config());
  ASSERT_TRUE(job.ok()) << job.status();
  testing::ExpectOneHostThatAddsUp(*std::move(job), 0, 1);
}

TEST(JobTest, ProcessesWithAJobIdMeetInSharedMemory) { ExpectRankProgramSucceeds("meet", 3); }

// Ranks that share memory do not listen at the job's address, so the job starts even if the port is in use.
TEST(JobTest, ProcessesThatShareMemoryListenNowhere) {
  const std::unique_ptr<TcpListener> taken = testing::ListenOnLoopback();
  ExpectRankProgramSucceeds("meet", 3, {.env = {{"RONDA_MASTER_PORT", absl::StrCat(taken->endpoint().port)}}});
}

TEST(JobTest, MissingRankIsNamedAfterTheStartTimeout) {
  const JobResult result = RunRankProgram("all_but_rank_1", 3, {.env = {{"RONDA_START_TIMEOUT", "500ms"}}});
  EXPECT_THAT(result.ranks[0].output, HasSubstr("rank 1"));
  EXPECT_TRUE(result.left_in_shared_memory.empty());
}

TEST(JobTest, PluginOfMpiThatIsNotThereIsNamed) {
  Config config;
  config.job = {.rank = 1, .size = 4, .local_rank = 1, .local_size = 2};
  config.job.mpi = {.launcher = MpiEnvironment::Launcher::kOpenMpi, .plugin = "/nowhere/libronda_mpi.so"};
  const absl::Status status = ConnectJob(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(status), HasSubstr("/nowhere/libronda_mpi.so"));
}

TEST(JobTest, BackendOfMpiWithoutMpiIsRefusedBeforeAnyRankWaits) {
  Config config;
  config.job = {.rank = 1, .size = 2, .job_id = "no-mpi-here"};
  for (const char* address : {"", "127.0.0.1"}) {  // without an address, and with one as rondarun sets it
    config.job.master_address = address;
    config.job.master_port = 1;
    for (const char* backend : {"mpi", "hierarchical-mpi"}) {
      config.backend = backend;
      const absl::Status status = ConnectJob(config).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(Text(status), HasSubstr(absl::StrCat("RONDA_BACKEND=\"", backend, "\" needs MPI")));
    }
  }
}

TEST(ThisHostTest, IdentityIsStableAndFitsTheRendezvous) {
  EXPECT_EQ(HostId(), HostId());
  EXPECT_NE(HostName(), "");
  EXPECT_LE(HostId().size(), 255u);
}

void MeetTheOthers() {
  const absl::StatusOr<Config> config = ReadConfig(ProcessEnvironment());
  ASSERT_TRUE(config.ok()) << config.status();
  absl::StatusOr<ConnectedJob> job = ConnectJob(*config);
  ASSERT_TRUE(job.ok()) << job.status();
  testing::ExpectOneHostThatAddsUp(*std::move(job), config->job.rank, config->job.size);
}

void MeetUnlessRankOne() {
  if (ReadConfig(ProcessEnvironment())->job.rank != 1) MeetTheOthers();
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  return ronda::testing::RankProgramMain(
      argc, argv, {{"meet", ronda::MeetTheOthers}, {"all_but_rank_1", ronda::MeetUnlessRankOne}});
}
