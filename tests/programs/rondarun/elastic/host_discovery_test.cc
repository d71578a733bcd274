// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/host_discovery.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "programs/rondarun/supervise/child_process.h"
#include "tests/testing/fakes.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The process of a program that has printed `output` and has ended.
class EndedProcess final : public ChildProcess {
 public:
  explicit EndedProcess(const std::string& output, End end)
      : ChildProcess(1, UniqueFd(), "", {.input = UniqueFd(), .outputs = {PipeWith(output), PipeWith("")}}),
        end_(end) {}

  void SignalGroup(int) const override {}
  void SignalAlone(int) const override {}
  std::optional<int> NextMotion() const override { return std::nullopt; }
  End Collect() override { return end_; }

 private:
  static UniqueFd PipeWith(const std::string& text) {
    int ends[2] = {};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(ends[1]);
    return UniqueFd(ends[0]);
  }

  const End end_;
};

class SaidLines final : public JobListener {
 public:
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }

 private:
  void OnRankStart(RankId, pid_t, const std::string&) override {}
  void OnOutput(RankId, Stream, absl::string_view) override {}
  void OnOutputEnd(RankId, Stream) override {}
  void OnRankEnd(RankEnd) override {}
  void OnHelperLine(absl::string_view, absl::string_view) override {}
  void OnJobFailure(absl::string_view, int) override {}
  size_t Pending(Stream) const override { return 0; }
  void Say(absl::string_view text) override { lines_.emplace_back(text); }
  void Explain(absl::string_view) override {}

  std::vector<std::string> lines_;
};

class HostDiscoveryTest : public ::testing::Test, private ProcessStarter {
 protected:
  HostDiscoveryTest() {
    supervision_.listener = &said_;
    supervision_.clock = &clock_;
    supervision_.start = [this](std::unique_ptr<JobPart> part) {
      part_ = std::move(part);
      return part_->Start(*this, &said_);
    };
    discovery_.emplace(HostDiscovery::Options{.command = {"discover"}, .environment = {}, .slots_per_host = 1},
                       supervision_, [this](const std::vector<JobMembership::Host>&) { ++changes_; });
  }

  // Lets a run of the program print `output` and end. Returns what the user sees.
  std::vector<std::string> Run(const std::string& output, int exit_code = 0) {
    output_ = output;
    end_ = {.exit_code = exit_code};
    clock_.Advance(absl::Seconds(1));
    discovery_->OnTime();
    part_->Collect();
    return said_.Take();
  }

  // Lets a run of the program take longer than it may. Returns what the user sees.
  std::vector<std::string> RunTooLong() {
    output_ = "";
    end_ = {.exit_code = -1, .signal = SIGKILL};
    clock_.Advance(absl::Seconds(1));
    discovery_->OnTime();
    clock_.Advance(absl::Minutes(1));
    discovery_->OnTime();
    part_->Collect();
    return said_.Take();
  }

  int changes() const { return changes_; }

 private:
  absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildProcess::Options&) const override {
    return std::make_unique<EndedProcess>(output_, end_);
  }

  testing::FakeClock clock_;
  SaidLines said_;
  MemberSupervision supervision_;
  std::unique_ptr<JobPart> part_;
  std::string output_;
  ChildProcess::End end_;
  int changes_ = 0;
  std::optional<HostDiscovery> discovery_;
};

TEST_F(HostDiscoveryTest, HostsAreToldWhenTheyChange) {
  EXPECT_THAT(Run("a\nb\n"), IsEmpty());
  EXPECT_THAT(Run("a\nb\n"), IsEmpty());
  EXPECT_EQ(changes(), 1);
  EXPECT_THAT(Run("a\n"), IsEmpty());
  EXPECT_EQ(changes(), 2);
}

TEST_F(HostDiscoveryTest, FailureIsToldAgainAfterASuccess) {
  Run("a\n");
  EXPECT_THAT(Run("", 3), ElementsAre(HasSubstr("exit")));
  EXPECT_THAT(Run("", 3), IsEmpty()) << "the same failure";
  EXPECT_THAT(Run("a\n"), IsEmpty());
  EXPECT_THAT(Run("", 3), ElementsAre(HasSubstr("exit")));
}

TEST_F(HostDiscoveryTest, RunThatTakesTooLongIsToldAsThat) {
  EXPECT_THAT(RunTooLong(), ElementsAre(HasSubstr("rondarun ended it, because it ran for more than 1m; the hosts")));
  EXPECT_THAT(Run("", 3), ElementsAre(HasSubstr("exited with code 3")));
}

TEST_F(HostDiscoveryTest, ListWithoutHostsIsToldFromTheFirstRun) {
  EXPECT_THAT(Run(""), ElementsAre(HasSubstr("no host")));
  EXPECT_EQ(changes(), 0);
}

}  // namespace
}  // namespace ronda
