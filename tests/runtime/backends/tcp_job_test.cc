// SPDX-License-Identifier: Apache-2.0

// Tests processes that find each other only through torchrun-style variables. The processes meet at rank 0 over gRPC,
// and then use shared memory. No process of this test forks after it has used gRPC.
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/backends/job.h"
#include "runtime/backends/read_config.h"
#include "runtime/base/config.h"
#include "runtime/base/unique_fd.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "tests/runtime/backends/rank_bodies.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::ronda::testing::ExpectRankProgramSucceeds;
using ::ronda::testing::FreePort;
using ::ronda::testing::JobResult;
using ::ronda::testing::ProcessJob;
using ::ronda::testing::RunRankProgram;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the variables of RunRankProgram under torchrun's names, without the job id.
std::optional<std::string> TorchrunStyle(const char* name) {
  static const auto* const names =
      new std::map<std::string, const char*>{{"RANK", "RONDA_RANK"},
                                             {"WORLD_SIZE", "RONDA_SIZE"},
                                             {"MASTER_PORT", "MASTER_PORT"},
                                             {"MASTER_ADDR", "MASTER_ADDR"},
                                             {"RONDA_HOSTS_PLUGIN", "RONDA_HOSTS_PLUGIN"},
                                             {"RONDA_JOB_SECRET", "RONDA_JOB_SECRET"},
                                             {"RONDA_START_TIMEOUT", "RONDA_START_TIMEOUT"}};
  const auto it = names->find(name);
  return it == names->end() ? std::nullopt : ProcessEnvironment()(it->second);
}

template <typename ExpectedCommunicator = ShmCommunicator>
void Meet(const EnvironmentReader& environment) {
  const absl::StatusOr<Config> config = ReadConfig(environment);
  ASSERT_TRUE(config.ok()) << config.status();
  absl::StatusOr<ConnectedJob> job = ConnectJob(*config);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_NE(dynamic_cast<ExpectedCommunicator*>(job->transport.communicator.get()), nullptr);
  testing::ExpectOneHostThatAddsUp(*std::move(job), config->job.rank, config->job.size);
}

void MeetTheOthers() { Meet(TorchrunStyle); }

// Returns the variables of this job as Paddle's launcher names them.
std::optional<std::string> PaddleStyle(const char* name) {
  const EnvironmentReader environment = ProcessEnvironment();
  const std::string port = environment("MASTER_PORT").value_or("");
  if (std::string(name) == "PADDLE_TRAINER_ID") return environment("RONDA_RANK");
  if (std::string(name) == "PADDLE_TRAINERS_NUM") return environment("RONDA_SIZE");
  if (std::string(name) == "PADDLE_TRAINER_ENDPOINTS") return absl::StrCat("[::1]:", port, ",[::1]:1,[::1]:2");
  if (std::string(name) == "RONDA_HOSTS_PLUGIN") return environment(name);
  return std::nullopt;
}

void MeetAsPaddleSays() { Meet(PaddleStyle); }

// Makes each rank look to the other ranks like a rank on another host.
void MeetAcrossHosts() {
  ASSERT_EQ(unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr), 0);
  const absl::StatusOr<Config> config = ReadConfig(TorchrunStyle);
  ASSERT_TRUE(config.ok()) << config.status();
  absl::StatusOr<ConnectedJob> job = ConnectJob(*config);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->topology.cross_size, config->job.size);
  EXPECT_NE(dynamic_cast<MessageCommunicator*>(job->transport.communicator.get()), nullptr);
  testing::ExpectAddsUp(*std::move(job), config->job.rank, config->job.size);
}

void MeetUnlessRankOne() {
  if (TorchrunStyle("RANK") != "1") Meet(TorchrunStyle);
}

void MeetOverTcpAsRankZeroSays() {
  const auto environment = [](const char* name) -> std::optional<std::string> {
    if (std::string(name) == "RONDA_BACKEND" && TorchrunStyle("RANK") == "0") return "tcp";
    return TorchrunStyle(name);
  };
  Meet<MessageCommunicator>(environment);
}

void MeetOverTcpNowhere() {
  Meet([](const char* name) -> std::optional<std::string> {
    return std::string(name) == "RONDA_BACKEND" ? "tcp" : ProcessEnvironment()(name);
  });
}

// Behaves like a Kubernetes pod, where a rank looks up the name of rank 0's pod before that name exists.
void MeetAsPods() {
  const std::string hosts = ::testing::TempDir() + "/hosts of rank " + *TorchrunStyle("RANK");
  std::ofstream(hosts) << "127.0.0.1 localhost\n";
  ASSERT_EQ(unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr), 0);
  const UniqueFd watch(inotify_init1(IN_CLOEXEC));
  ASSERT_GE(inotify_add_watch(watch.get(), hosts.c_str(), IN_CLOSE_NOWRITE), 0);
  std::thread naming([&] {
    inotify_event looked_up;  // in vain
    EXPECT_GT(read(watch.get(), &looked_up, sizeof(looked_up)), 0);
    std::ofstream(hosts, std::ios::app) << "127.0.0.1 train-0.train\n";
  });
  Meet([](const char* name) -> std::optional<std::string> {
    if (std::string(name) == "RANK") return std::nullopt;
    if (std::string(name) == "JOB_COMPLETION_INDEX") return TorchrunStyle("RANK");
    return TorchrunStyle(name);
  });
  naming.join();
}

void MeetWithASecretOfItsOwn() {
  Meet([](const char* name) {
    return std::string(name) == "RONDA_JOB_SECRET" ? TorchrunStyle("RANK") : TorchrunStyle(name);
  });
}

void MeetWithSettingsOfItsOwn() {
  Meet([](const char* name) -> std::optional<std::string> {
    const bool is_rank_one = TorchrunStyle("RANK") == "1";
    if (is_rank_one && std::string(name) == "RONDA_BACKEND") return "mpi";
    if (is_rank_one && std::string(name) == "RONDA_LOCK_AFTER") return "9";
    return TorchrunStyle(name);
  });
}

TEST(TcpJobTest, ProcessesMeetAtTheDefaultAddressWithoutASecret) {
  ExpectRankProgramSucceeds("meet", 2, {.env = {{"MASTER_PORT", FreePort()}}});
}

TEST(TcpJobTest, ProcessesMeetAtANameWithASecret) {
  ExpectRankProgramSucceeds(
      "meet", 4,
      {.env = {{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", FreePort()}, {"RONDA_JOB_SECRET", "open sesame"}}});
}

TEST(TcpJobTest, ProcessesMeetAtAnIPv6AddressAsPaddleSays) {
  ExpectRankProgramSucceeds("paddle", 3, {.env = {{"MASTER_PORT", FreePort()}}});
}

TEST(TcpJobTest, HostsThatHaveNoMpiBetweenThemAddUpOverTcp) {
  if (geteuid() != 0) GTEST_SKIP() << "mount namespaces need root";
  ExpectRankProgramSucceeds("across_hosts", 3, {.env = {{"MASTER_PORT", FreePort()}}});
}

TEST(TcpJobTest, PodsOfKubernetesWaitForTheNameOfRankZero) {
  if (geteuid() != 0) GTEST_SKIP() << "mount namespaces need root";
  ExpectRankProgramSucceeds(
      "pods", 2,
      {.env = {{"MASTER_ADDR", "train-0.train"}, {"MASTER_PORT", FreePort()}, {"RONDA_JOB_SECRET", "open sesame"}}});
}

TEST(TcpJobTest, ProcessesOfOneHostTakeTcpIfRankZeroSaysSo) {
  ExpectRankProgramSucceeds("tcp", 3, {.env = {{"MASTER_PORT", FreePort()}, {"RONDA_JOB_SECRET", "open sesame"}}});
}

TEST(TcpJobTest, TcpWithoutAnAddressNamesTheVariableToSet) {
  const JobResult result = RunRankProgram("no_place", 2);
  for (const auto& rank : result.ranks) EXPECT_THAT(rank.output, HasSubstr("for TCP set RONDA_MASTER_PORT"));
}

TEST(TcpJobTest, DifferentSettingsAreReportedByRankZeroWhoseHold) {
  const JobResult result = RunRankProgram("own_backend", 2, {.env = {{"MASTER_PORT", FreePort()}}});
  EXPECT_EQ(result.ranks[1].exit_code, 0) << result.ranks[1].output;
  EXPECT_THAT(result.ranks[0].output,
              AllOf(HasSubstr("different settings: RONDA_LOCK_AFTER: rank 1"), HasSubstr("RONDA_BACKEND: rank 1")));
}

TEST(TcpJobTest, MissingRankIsNamedOnEveryOther) {
  const JobResult result =
      RunRankProgram("all_but_rank_1", 3, {.env = {{"MASTER_PORT", FreePort()}, {"RONDA_START_TIMEOUT", "1s"}}});
  for (const int rank : {0, 2}) {
    EXPECT_NE(result.ranks[rank].exit_code, 0);
    EXPECT_THAT(result.ranks[rank].output, HasSubstr("rank 1 of 3 did not join rank 0"));
  }
}

TEST(TcpJobTest, RankWithAnotherSecretIsRefusedAndNamedToTheRest) {
  const JobResult result =
      RunRankProgram("own_secret", 2, {.env = {{"MASTER_PORT", FreePort()}, {"RONDA_START_TIMEOUT", "1s"}}});
  EXPECT_THAT(result.ranks[1].output,
              AllOf(HasSubstr("has another job secret than rank 0"), HasSubstr("rank 1 (host ")));
  EXPECT_THAT(result.ranks[0].output,
              AllOf(HasSubstr("rank 1 of 2 did not join"), HasSubstr("has another job secret than rank 0")));
}

TEST(TcpJobTest, AddressBeyondLoopbackAsksForASecret) {
  const JobResult result = RunRankProgram("meet", 2, {.env = {{"MASTER_ADDR", "192.0.2.7"}, {"MASTER_PORT", "29500"}}});
  for (const auto& rank : result.ranks) EXPECT_THAT(rank.output, HasSubstr("set RONDA_JOB_SECRET"));
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  return ronda::testing::RankProgramMain(argc, argv,
                                         {{"meet", ronda::MeetTheOthers},
                                          {"all_but_rank_1", ronda::MeetUnlessRankOne},
                                          {"own_secret", ronda::MeetWithASecretOfItsOwn},
                                          {"own_backend", ronda::MeetWithSettingsOfItsOwn},
                                          {"paddle", ronda::MeetAsPaddleSays},
                                          {"tcp", ronda::MeetOverTcpAsRankZeroSays},
                                          {"no_place", ronda::MeetOverTcpNowhere},
                                          {"across_hosts", ronda::MeetAcrossHosts},
                                          {"pods", ronda::MeetAsPods}});
}
