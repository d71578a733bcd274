// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/elastic_launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ronda::testing {
namespace {

constexpr int kTimeoutMs = 240'000;  // after which the test fails

}  // namespace

ElasticLauncher::ElasticLauncher(std::vector<std::string> argv, Environment environment)
    : argv_(std::move(argv)), environment_(std::move(environment)) {
  static std::atomic<int> jobs{0};
  environment_.emplace_back("RONDA_JOB_ID", absl::StrCat("test-elastic-", getpid(), "-", jobs++));
}

ElasticLauncher::~ElasticLauncher() = default;

void ElasticLauncher::Start(const Environment& environment) {
  std::array<int, 2> pair = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
  const UniqueFd its_end(pair[1]);
  Environment all = environment_;
  all.insert(all.end(), environment.begin(), environment.end());
  all.emplace_back(kMembershipVariable.c_str(), absl::StrCat(CommandedProcess::kInheritedFd));
  Member member;
  member.socket.Reset(pair[0]);
  member.process = std::make_unique<CommandedProcess>(argv_, all, its_end.get());
  member.pidfd.Reset(static_cast<int>(syscall(SYS_pidfd_open, member.process->pid(), 0)));
  ASSERT_TRUE(member.pidfd.valid());
  members_.push_back(std::move(member));
  results_.emplace_back();
}

void ElasticLauncher::Run(const std::function<void(int size)>& on_met) {
  while (std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.stage != Stage::kEnded; })) {
    WaitForEvents();
    if (::testing::Test::HasFatalFailure()) return members_.clear();
    // The launcher may notice late that all members have met. By then, members may have left the epoch or ended.
    if (unmet_ == 0) {
      unmet_ = -1;
      sizes_.push_back(size_);
      if (on_met) on_met(size_);
    }
    Decide();
  }
}

void ElasticLauncher::Kill(size_t member, int signal) const { kill(members_[member].process->pid(), signal); }

void ElasticLauncher::End(const std::string& reason) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].stage != Stage::kEnded) Tell(i, EndNotice{.reason = reason});
  }
}

void ElasticLauncher::Vanish() {
  for (Member& member : members_) member.socket.Reset();
}

std::vector<size_t> ElasticLauncher::Present() const {
  std::vector<size_t> present;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].stage == Stage::kMet) present.push_back(i);
  }
  return present;
}

bool ElasticLauncher::Is(Stage stage) const {
  return std::any_of(members_.begin(), members_.end(), [stage](const Member& m) { return m.stage == stage; });
}

void ElasticLauncher::WaitForEvents() {
  std::vector<pollfd> events;
  std::vector<size_t> whose;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].stage == Stage::kEnded) continue;
    for (const int fd : {members_[i].socket.get(), members_[i].pidfd.get()}) {
      events.push_back({.fd = fd, .events = POLLIN, .revents = 0});  // poll() ignores -1
      whose.push_back(i);
    }
  }
  ASSERT_GT(poll(events.data(), events.size(), kTimeoutMs), 0) << "the members of the job do nothing";
  for (size_t e = 0; e < events.size(); ++e) {
    if (events[e].revents == 0 || members_[whose[e]].stage == Stage::kEnded) continue;
    if (e % 2 == 0) Listen(whose[e]);
    if (e % 2 == 1) RecordEnd(whose[e]);
  }
}

void ElasticLauncher::Listen(size_t index) {
  Member& member = members_[index];
  while (member.socket.valid()) {
    const absl::StatusOr<std::string> text = ReceiveMembershipMessage(member.socket.get());
    if (!text.ok()) return member.socket.Reset();  // it has ended, or will
    if (text->empty()) return;
    const absl::StatusOr<MemberMessage> message = DecodeMemberMessage(*text);
    ASSERT_TRUE(message.ok()) << message.status();
    if (const auto* join = std::get_if<JoinRequest>(&*message)) {
      results_[index].joins.push_back(*join);
      member.stage = Stage::kJoined;
    } else if (const auto* met = std::get_if<EpochMet>(&*message)) {
      EXPECT_EQ(met->epoch, epoch_);
      --unmet_;
      member.stage = Stage::kMet;
    } else {
      member.stage = Stage::kLeaving;
    }
  }
}

void ElasticLauncher::RecordEnd(size_t index) {
  Listen(index);  // first read its earlier messages
  Member& member = members_[index];
  results_[index].output = member.process->Rest();
  results_[index].status = member.process->Wait();
  member.stage = Stage::kEnded;
}

void ElasticLauncher::Tell(size_t member, const LauncherMessage& message) const {
  // Ignores errors, because a member that has just died cannot receive messages.
  if (members_[member].socket.valid()) {
    SendMembershipMessage(members_[member].socket.get(), Encode(message)).IgnoreError();
  }
}

void ElasticLauncher::Decide() {
  if (last_ && sizes_.size() == last_->first && Is(Stage::kJoined)) return End(last_->second);
  if (Is(Stage::kStarting) || !Is(Stage::kJoined)) return;
  if (Is(Stage::kPlaced) || Is(Stage::kMet)) {
    const bool has_joining_member = std::any_of(members_.begin(), members_.end(), [&](const Member& m) {
      return m.stage == Stage::kJoined && results_[static_cast<size_t>(&m - members_.data())].joins.size() == 1;
    });
    if (!has_joining_member || is_change_told_ || epoch_ < 0) return;
    for (const size_t i : Present()) Tell(i, ChangeNotice{});
    is_change_told_ = !Present().empty();
    return;
  }
  ++epoch_;
  is_change_told_ = false;
  size_ = static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [](const Member& m) { return m.stage == Stage::kJoined; }));
  unmet_ = size_;
  int rank = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].stage != Stage::kJoined) continue;
    members_[i].stage = Stage::kPlaced;
    Tell(i, EpochPlace{.epoch = epoch_,
                       .topology = {.rank = rank, .size = size_, .local_rank = rank, .local_size = size_}});
    ++rank;
  }
}

}  // namespace ronda::testing
