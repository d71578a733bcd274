// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/agent_host.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The shortest time after which an agent considers a silent launcher lost. It is long, because a launcher that is
// stopped for a while (Ctrl+Z) must not lose its members on other hosts.
constexpr absl::Duration kMinTimeout = absl::Seconds(60);

absl::Duration PeriodOf(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return timeout;
  return std::clamp(timeout / 10, absl::Milliseconds(50), absl::Seconds(1));
}

}  // namespace

AgentHost::AgentHost(Options options, const MemberSupervision& supervision, HostListener* listener)
    : options_(std::move(options)),
      supervision_(supervision),
      listener_(listener),
      period_(PeriodOf(options_.heartbeat_timeout)) {}

absl::Status AgentHost::Start(const JobMembership::StartMember& start) {
  if (agent_ == nullptr) {
    std::unique_ptr<AgentPart> agent =
        options_.make_agent([this](const AgentPart::Hello& hello) { OnHello(hello); }, this);
    AgentPart* const started = agent.get();
    RONDA_RETURN_IF_ERROR(supervision_.start(std::move(agent)));
    agent_ = started;
    next_sign_ = absl::InfiniteFuture();
  }
  agent_->StartMember(start.member, start.slot, start.slots);
  return absl::OkStatus();
}

void AgentHost::Send(int member, absl::string_view text) {
  if (agent_ != nullptr) agent_->SendToMember(member, text);
}

void AgentHost::Signal(int member, int signo) {
  if (agent_ == nullptr) return;
  // An agent that has not even sent its hello when its members must be killed will probably never answer.
  if (signo == SIGKILL && !agent_->is_greeted()) return agent_->Abandon("its agent does not answer");
  agent_->SignalMember(member, signo);
}

void AgentHost::OnHello(const AgentPart::Hello& hello) {
  address_ = options_.address.value_or(hello.address);
  if (address_.empty()) {
    supervision_.listener->Say(
        absl::StrCat("host ", options_.host,
                     " has no address by which other hosts could reach it: name an interface with "
                     "--network-interfaces"));
  }
  const absl::Duration timeout = std::max(kMinTimeout, options_.heartbeat_timeout);
  agent_->StartMembers(options_.variables, options_.job_id, {.period = period_, .timeout = timeout});
  last_heard_ = next_sign_ = supervision_.clock->Now();
  if (period_ == absl::InfiniteDuration()) next_sign_ = absl::InfiniteFuture();
}

void AgentHost::OnTime() {
  const absl::Time now = supervision_.clock->Now();
  if (agent_ == nullptr || now < next_sign_) return;
  next_sign_ = now + period_;
  agent_->SendSignOfLife();
  if (agent_->bytes_heard() != bytes_heard_) {
    bytes_heard_ = agent_->bytes_heard();
    last_heard_ = now;
  } else if (now - last_heard_ >= options_.heartbeat_timeout) {
    agent_->Abandon(
        absl::StrCat("its agent has given no sign of life for ", absl::FormatDuration(options_.heartbeat_timeout)));
  }
}

void AgentHost::OnFreePort(int port) {
  if (!address_.empty()) listener_->OnMeetingPoint(options_.host, {.address = address_, .port = port});
}

void AgentHost::OnNotStarted(int member, int exit_code, absl::string_view why) {
  listener_->OnNotStarted(member, exit_code, why);
}

void AgentHost::OnGone(absl::string_view why) {
  agent_ = nullptr;
  listener_->OnHostLost(options_.host, why);
}

}  // namespace ronda
