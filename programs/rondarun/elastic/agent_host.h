// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_AGENT_HOST_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_AGENT_HOST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/elastic/member_processes.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/members.h"

namespace ronda {

// Receives the events of a host with an agent, and of the members on it.
class HostListener : public MemberListener {
 public:
  virtual void OnNotStarted(int member, int exit_code, absl::string_view why) = 0;
  // If rank 0 is on this host, other members can from now on connect to it at this point.
  virtual void OnMeetingPoint(const std::string& host, const JobMembership::MeetingPoint& point) = 0;
  // The connection to the host has been lost. Afterwards, the listener is also called for the end of each member on the
  // host.
  virtual void OnHostLost(const std::string& host, absl::string_view why) = 0;
};

// A host whose members are supervised by an agent. AgentHost starts the agent together with the first member on the
// host. If the agent is lost, AgentHost starts another one together with the next member. The agent and the launcher
// exchange heartbeats, so both notice when the host is cut off.
//
// Thread-compatible; owned by an ElasticJob.
class AgentHost final : public MemberHost, private AgentListener {
 public:
  using MakeAgent = std::function<std::unique_ptr<AgentPart>(AgentPart::OnHello on_hello, AgentListener* members)>;

  struct Options {
    std::string host;
    MakeAgent make_agent;
    std::optional<std::string> address;  // by which other hosts reach it; nullopt: its agent reports it
    std::vector<std::string> variables;  // of all members, "NAME=value"
    std::string job_id;
    absl::Duration heartbeat_timeout = absl::Seconds(10);  // without a sign of life until the host is treated as lost
  };

  // The agent is started through `supervision`. `listener` outlives this.
  AgentHost(Options options, const MemberSupervision& supervision, HostListener* listener);

  absl::Status Start(const JobMembership::StartMember& start) override;
  void Send(int member, absl::string_view text) override;
  void Signal(int member, int signo) override;

  // Sends a heartbeat if one is due, and checks whether the agent has been silent for too long. Must be called at
  // `deadline`, and may also be called earlier.
  void OnTime();
  // Returns whether the host is connected.
  bool is_connected() const { return agent_ != nullptr; }
  absl::Time deadline() const { return agent_ == nullptr ? absl::InfiniteFuture() : next_sign_; }

 private:
  void OnHello(const AgentPart::Hello& hello);

  void OnMessage(int member, absl::string_view text) override { listener_->OnMessage(member, text); }
  void OnMisbehaviour(int member, absl::string_view why) override { listener_->OnMisbehaviour(member, why); }
  void OnMotion(int member, Motion motion) override { listener_->OnMotion(member, motion); }
  void OnFreePort(int port) override;
  void OnNotStarted(int member, int exit_code, absl::string_view why) override;
  void OnGone(absl::string_view why) override;

  const Options options_;
  const MemberSupervision supervision_;
  HostListener* const listener_;
  const absl::Duration period_;  // between signs of life

  AgentPart* agent_ = nullptr;  // not owned; nullptr: none runs
  std::string address_;         // of the host
  uint64_t bytes_heard_ = 0;    // from the agent, at the last check that found new ones
  absl::Time last_heard_ = absl::InfiniteFuture();
  absl::Time next_sign_ = absl::InfiniteFuture();
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_AGENT_HOST_H_
