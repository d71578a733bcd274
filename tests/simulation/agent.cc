// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/agent.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda::simulation {
namespace {

using Kind = AgentMessage::Kind;

constexpr int kFailedExit = 1;

}  // namespace

Agent::Agent(Options options, VirtualProcesses::Descriptors descriptors)
    : options_(std::move(options)),
      descriptors_(std::move(descriptors)),
      output_(descriptors_.output.get()),
      report_(&output_),
      supervisor_(&report_, &output_) {}

int Agent::Run() {
  report_.SayHello("10.0.0.1", {.free = 1, .store = 2});
  if (!AwaitOrder()) return 0;
  if (!Become().ok()) return kFailedExit;
  supervisor_.Watch(descriptors_.input.get(), [this] { Obey(); });
  supervisor_.Run([] {});
  if (!members_->is_forsaken()) Flush();
  return 0;
}

bool Agent::ReadMore() {
  std::array<char, 65536> buffer;
  const ssize_t count = read(descriptors_.input.get(), buffer.data(), buffer.size());
  if (count <= 0) return false;
  const absl::string_view bytes(buffer.data(), static_cast<size_t>(count));
  return reader_.Feed(bytes, [this](AgentMessage message) { messages_.push_back(std::move(message)); }).ok();
}

bool Agent::AwaitOrder() {
  while (!is_ordered_) {
    PollSet poll;
    bool more = true;
    poll.Add(descriptors_.input.get(), POLLIN, [&] { more = ReadMore(); });
    if (!output_.pending().empty()) poll.Add(output_.fd(), POLLOUT, [] {});
    RONDA_CHECK(poll.Wait(absl::InfiniteDuration()).ok());
    if (!more || !output_.Write().ok()) return false;
    std::erase_if(messages_, [this](const AgentMessage& message) {
      if (message.kind == Kind::kMembers) {
        job_id_ = message.text(0);
        signs_ = {.period = absl::Milliseconds(message.number(0)), .timeout = absl::Milliseconds(message.number(1))};
      }
      is_ordered_ = is_ordered_ || message.kind == Kind::kGo;
      return message.kind < Kind::kSignal || message.kind == Kind::kMembers;
    });
  }
  return true;
}

absl::Status Agent::Become() {
  RONDA_ASSIGN_OR_RETURN(name_, BecomeAgent(job_id_, options_.host));
  options_.on_only_one();
  supervisor_.MakeElastic([this](MemberSupervision supervision) {
    auto members = std::make_unique<AgentMembers>(
        AgentMembers::Options{.make_member = options_.make_member,
                              .send = [this](const AgentMessage& message) { report_.Send(message); },
                              .signs = signs_,
                              .first_messages = std::exchange(messages_, {})},
        std::move(supervision));
    members_ = members.get();
    return members;
  });
  report_.BeforeEnds([this](RankId member) { members_->PassFinalMessages(member); });
  return absl::OkStatus();
}

void Agent::Obey() {
  const bool more = ReadMore();
  for (const AgentMessage& message : std::exchange(messages_, {})) {
    if (message.kind == Kind::kSignal) {
      supervisor_.SignalParts(static_cast<int>(message.number(0)));
    } else {
      members_->Receive(message);
    }
  }
  if (more) return;
  supervisor_.StopWatching();
  members_->Stop("the launcher is gone");
  supervisor_.SignalParts(SIGKILL);
}

void Agent::Flush() {
  while (!output_.pending().empty()) {
    PollSet poll;
    poll.Add(output_.fd(), POLLOUT, [] {});
    RONDA_CHECK(poll.Wait(absl::InfiniteDuration()).ok());
    output_.Write().IgnoreError();
  }
}

}  // namespace ronda::simulation
