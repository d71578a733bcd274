// SPDX-License-Identifier: Apache-2.0

// Tests the ronda-monitors on two hosts of a job. The monitor on the first host asks the one on the other host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/ronda.hpp"
#include "proto/ronda/v1/monitor.pb.h"
#include "runtime/base/clock.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/message_streams.h"
#include "runtime/net/proof.h"
#include "tests/hosts/hosts_suite.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "f00d";
constexpr int kPort = 9465;

// -- The program of the ranks --

// Makes short steps, whose sum still does not fit into one packet. The rank in TEST_LATE_RANK is late in every step.
void StepsUntilKilled() {
  init();
  const char* const late = std::getenv("TEST_LATE_RANK");
  std::vector<float> values(4096, 1);
  while (true) {
    const bool is_late = late != nullptr && rank() == std::atoi(late);
    absl::SleepFor(absl::Milliseconds(is_late ? 25 : 5));
    std::fill(values.begin(), values.end(), 1.0F);
    allreduce(tensor("gradient", values.data(), {static_cast<int64_t>(values.size())}), {Op::Sum});
  }
}

// -- The tests --

class MonitorHostsTest : public HostsTest {
 protected:
  void SetUp() override {
    HostsTest::SetUp();
    if (IsSkipped()) return;
    if (access("/dev/net/tun", R_OK | W_OK) != 0) GTEST_SKIP() << "there is no /dev/net/tun to delay messages with";
    hosts_ = MakeHosts({.count = 2, .cables = NetworkHosts::Options::Cables::kRelayed});
    ASSERT_NE(hosts_, nullptr);
  }
  void TearDown() override {
    if (hosts_ == nullptr) return;
    for (int host = 0; host < 2; ++host) hosts_->KillAllOn(host);
    for (const pid_t pid : agents_) waitpid(pid, nullptr, 0);
  }

  // Starts two ranks and a monitor on each host. Each host has its own /proc, so a monitor sees only its host's
  // processes.
  void Start(const std::string& variables = "") {
    for (int host = 0; host < 2; ++host) {
      const std::string ask = host == 0 ? absl::StrCat(" --ask ", hosts_->AddressOf(1), ":", kPort) : "";
      const std::string here = std::filesystem::current_path();
      const std::string monitor = absl::StrCat(
          "until j=$(", here, "/programs/rondactl/rondactl jobs | sed -n \"2s/ .*//p\") && [ -n \"$j\" ]; do ",
          "sleep 0.1; done; ", here, "/programs/monitor/serve/ronda-monitor --grpc-interface eth0 --grpc-port ", kPort,
          ask, " $j");
      const std::string ranks =
          absl::StrCat(here, "/programs/rondarun/rondarun --nnodes 2 --node-rank ", host,
                       " --nproc-per-node 2 --master-addr ", hosts_->AddressOf(0), " --master-port 29500 ",
                       std::filesystem::read_symlink("/proc/self/exe").string(), " --rank_program=steps_until_killed");
      const std::string variables_of_both =
          absl::StrCat("RONDA_JOB_SECRET=", kSecret, " RONDA_HOSTS_PLUGIN=", HostsPlugin(),
                       " XDG_RUNTIME_DIR=/dev/shm TEST_TMPDIR=/tmp ", variables);
      Spawn(
          {hosts_->agent(), hosts_->NameOf(host),
           absl::StrCat("env ", variables_of_both, " unshare -p -f --mount-proc sh -c '", ranks, " & ", monitor, "'")});
    }
  }

  // Calls Explain on the first host's monitor. Returns its answer, or "" if it does not answer.
  static std::string Explain(const NetworkHosts& hosts) {
    const Endpoint endpoint = {.host = "first", .address = hosts.AddressOf(0), .port = kPort};
    const auto channel = MessageChannel::Connect(HostsPlugin(), endpoint, {});
    if (!channel.ok()) return "";
    const auto call = [&](const std::string& method, const google::protobuf::MessageLite& request) {
      return CallOnce(
          (*channel)->Call("/ronda.v1.MonitorService/" + method, MessageChannel::Absent::kIsAnError, absl::Seconds(5)),
          request.SerializeAsString());
    };
    v1::MonitorChallengeResponse challenge;
    const auto challenged = call("Challenge", v1::MonitorChallengeRequest());
    if (!challenged.ok() || !challenge.ParseFromString(*challenged)) return "";
    v1::ExplainRequest request;
    request.mutable_proof()->set_nonce(challenge.nonce());
    request.mutable_proof()->set_proof(
        SecretProof(kSecret, {"ronda.v1.MonitorService", challenge.nonce(), "/ronda.v1.MonitorService/Explain"}));
    v1::ExplainResponse response;
    const auto explained = call("Explain", request);
    return explained.ok() && response.ParseFromString(*explained) ? response.text() : "";
  }

  // Calls Explain until the answer contains all `parts`, or until `timeout` has passed. Returns the last answer.
  std::string ExplainUntil(const std::vector<std::string>& parts, absl::Duration timeout) const {
    const absl::Time end = SteadyNow() + timeout;
    std::string text;
    do {
      text = Explain(*hosts_);
      const auto has = [&](const std::string& part) { return absl::StrContains(text, part); };
      if (std::all_of(parts.begin(), parts.end(), has)) break;
      absl::SleepFor(absl::Milliseconds(100));
    } while (SteadyNow() < end);
    return text;
  }

  // Waits until the monitor has compared the ranks of both hosts.
  void AwaitBothHosts() const {
    const std::string text = ExplainUntil({"no rank holds the others up", " of 4 ranks"}, absl::Seconds(60));
    ASSERT_THAT(text, HasSubstr("4 of 4 ranks"));
  }

  std::unique_ptr<NetworkHosts> hosts_;

 private:
  void Spawn(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = -1;
    ASSERT_EQ(posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ), 0);
    agents_.push_back(pid);
  }

  std::vector<pid_t> agents_;
};

TEST_F(MonitorHostsTest, RankOfAnotherHostThatIsLateIsNamed) {
  Start("TEST_LATE_RANK=3");
  const std::vector<std::string> parts = {"rank 3 (host " + hosts_->NameOf(1), "came last into",
                                          "its program submits its tensors later than the others"};
  EXPECT_THAT(ExplainUntil(parts, absl::Seconds(60)),
              AllOf(HasSubstr(parts[0]), HasSubstr(parts[1]), HasSubstr(parts[2])));
}

TEST_F(MonitorHostsTest, DelayInTheNetworkOfAHostIsNamed) {
  Start();
  AwaitBothHosts();
  hosts_->DelaySending(1, absl::Milliseconds(50));
  const std::string slow = "ranks 2, 3 on host " + hosts_->NameOf(1) + ": the network: ";
  EXPECT_THAT(ExplainUntil({slow}, absl::Seconds(5)), HasSubstr(slow));
  hosts_->DelaySending(1, absl::ZeroDuration());
  const std::string none = "no rank holds the others up";
  EXPECT_THAT(ExplainUntil({none}, absl::Seconds(60)), HasSubstr(none));
}

TEST_F(MonitorHostsTest, HostThatIsCutOffIsNamed) {
  Start();
  AwaitBothHosts();
  ASSERT_EQ(hosts_->CutOff(1), absl::OkStatus());
  const std::vector<std::string> parts = {"for rank 2 (host " + hosts_->NameOf(1),
                                          "the network: its host does not answer"};
  EXPECT_THAT(ExplainUntil(parts, absl::Seconds(5)), AllOf(HasSubstr(parts[0]), HasSubstr(parts[1])));
}

}  // namespace

std::vector<RankProgram> MonitorHostsPrograms() { return {{"steps_until_killed", StepsUntilKilled}}; }

}  // namespace ronda::testing
