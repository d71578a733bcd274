// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/job.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/logging.h"
#include "tests/simulation/agent.h"
#include "tests/simulation/member.h"
#include "tests/simulation/training.h"
#include "tests/simulation/virtual_sockets.h"
#include "tests/simulation/virtual_supervisor.h"

namespace ronda::simulation {
namespace {

// The longest time from a job's last fault, or its start, to its end. It allows for several of the longest timeouts in
// a row.
constexpr absl::Duration kTimeToEnd = absl::Seconds(180);
// The longest time from the end of the launcher to the end of the other processes. It is long, because an agent that is
// cut off ends late.
constexpr absl::Duration kTimeForProcesses = absl::Seconds(100);
// The longest time between the first and the last member leaving a failed epoch.
constexpr absl::Duration kTimeToHear = absl::Milliseconds(500);
// How long a member may be late after it was frozen or cut off.
constexpr absl::Duration kTimeToRecover = absl::Seconds(10);
// The launcher gives up a host whose agent sends no message for this time.
constexpr absl::Duration kAgentsTimeout = absl::Seconds(2);
// The launcher may give up the job only after this many faults.
constexpr size_t kFaultsToGiveUp = 3;

constexpr char kJobId[] = "0123456789abcdef0123456789abcdef";

std::string HostName(int host) { return absl::StrCat("host", host); }

std::map<std::string, int> InitialSlots(const Scenario& scenario) {
  std::map<std::string, int> slots;
  for (int host = 0; host < scenario.hosts; ++host) {
    slots[HostName(host)] = scenario.members / scenario.hosts + (host < scenario.members % scenario.hosts ? 1 : 0);
  }
  return slots;
}

}  // namespace

Job::Job(const Scenario& scenario, Counts* counts, std::function<void(const std::string& what)> violate)
    : scenario_(scenario),
      counts_(*counts),
      violate_(std::move(violate)),
      network_({.transport = scenario.transport, .latency = scenario.latency, .corrupted = scenario.corrupted}),
      hosts_([this](const std::string& host,
                    VirtualProcesses::Descriptors descriptors) { return RunAgent(host, std::move(descriptors)); },
             [this](const std::string& what) { Violate(what); }),
      slots_(InitialSlots(scenario)) {
  VirtualProcesses::Get().Begin(
      [this](const ChildProcess::Options& options, VirtualProcesses::Descriptors descriptors) {
        return RunProgram(options, std::move(descriptors));
      },
      [this](ProcessId process) { OnProcessEnd(process); });
}

void Job::Violate(const std::string& what) {
  const VirtualWorld::Shield shield;
  violate_(absl::StrCat("at ", absl::FormatDuration(VirtualWorld::Get().now()), ": ", what));
  std::abort();
}

void Job::Run() {
  std::thread faults([this] { BringFaults(); });
  {
    VirtualSupervisor supervisor(this, nullptr);
    supervisor.MakeElastic(
        [this](MemberSupervision supervision) { return std::make_unique<ElasticJob>(OptionsOfJob(), supervision); });
    supervisor.Run([this] { CheckTime(); });
  }
  is_over_ = true;
  CheckEnd();
  faults.join();
  AwaitProcesses();
  counts_.messages += network_.messages();
  counts_.halves += network_.halves();
  counts_.parts += VirtualSockets::Get().parts();
  counts_.resets += VirtualSockets::Get().resets();
  counts_.descriptors_failed += VirtualWorld::Get().descriptors_failed();
  counts_.agents += hosts_.agents();
  counts_.broken_connections += hosts_.broken();
}

ElasticJob::Options Job::OptionsOfJob() {
  ElasticJob::Options options = {.membership = {.initial_members = scenario_.members,
                                                .min_members = scenario_.min_members,
                                                .max_members = scenario_.max_members}};
  for (const auto& [host, slots] : slots_) options.membership.hosts.push_back({.name = host, .slots = slots});
  if (scenario_.hosts == 1) {
    options.make_member = MakeMemberOn(HostName(0));
  } else {
    options.describe_host = [this](const std::string& host) { return OptionsOf(host); };
  }
  const bool is_resized = std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                                      [](const Fault& fault) { return fault.kind == Fault::Kind::kResize; });
  if (is_resized) options.discovery = HostDiscovery::Options{.command = {"discover"}, .environment = {}};
  return options;
}

MemberProcesses::MakeMember Job::MakeMemberOn(const std::string& host) {
  return [host](const JobMembership::StartMember& start, int membership_fd) {
    ChildProcess::Options process = {.command = {"member", absl::StrCat(start.member), host, absl::StrCat(start.slot)},
                                     .environment = {}};
    GiveMembership(membership_fd, &process);
    return std::make_unique<RankPart>(start.member, host, std::move(process));
  };
}

AgentHost::Options Job::OptionsOf(const std::string& host) {
  const auto make_agent = [host](AgentPart::OnHello on_hello, AgentListener* members) {
    AgentPart::Options part = {
        .process = {.command = {"connect", host}, .environment = {}, .input = ChildProcess::Input::kPipe},
        .host = host,
        .directory = "",
        .command = {"member"},
        .members = members};
    return std::make_unique<AgentPart>(std::move(part), std::vector<RankId>(), std::move(on_hello));
  };
  return {.host = host,
          .make_agent = make_agent,
          .address = "10.0.0.1",
          .variables = {},
          .job_id = kJobId,
          .heartbeat_timeout = kAgentsTimeout};
}

// -- Processes --

int Job::RunProgram(const ChildProcess::Options& options, VirtualProcesses::Descriptors descriptors) {
  const std::vector<std::string>& command = options.command;
  if (command[0] == "member") return RunMember(command, std::move(descriptors.inherited.front()));
  if (command[0] == "connect") return hosts_.Connect(command[1], std::move(descriptors));
  return ListHosts(descriptors.output.get());
}

int Job::RunMember(const std::vector<std::string>& command, UniqueFd socket) {
  VirtualWorld& world = VirtualWorld::Get();
  const int id = std::stoi(command[1]);
  const Member started = {
      .process = world.current_process(), .host = command[2], .slot = std::stoi(command[3]), .socket = socket.get()};
  for (const auto& [other, member] : members_) {
    const bool is_there = member.host == started.host && member.slot == started.slot && IsAlive(member);
    if (is_there) Violate(absl::StrCat("members ", other, " and ", id, " have one slot"));
  }
  members_[id] = started;
  world.SleepUntil(world.now() + world.RandomDuration(absl::Milliseconds(20)));
  try {
    return simulation::Member(*this, id, std::move(socket)).Run();
  } catch (const std::exception&) {
    return 1;
  }
}

int Job::RunAgent(const std::string& host, VirtualProcesses::Descriptors descriptors) {
  Agent::Options options = {
      .host = host, .make_member = MakeMemberOn(host), .on_only_one = [this, host] { hosts_.RecordAgent(host); }};
  return Agent(std::move(options), std::move(descriptors)).Run();
}

int Job::ListHosts(int output) const {
  std::string list;
  for (const auto& [host, slots] : slots_) {
    if (slots > 0) absl::StrAppend(&list, host, ":", slots, "\n");
  }
  return write(output, list.data(), list.size()) == static_cast<ssize_t>(list.size()) ? 0 : 1;
}

void Job::OnProcessEnd(ProcessId process) {
  VirtualWorld& world = VirtualWorld::Get();
  network_.Drop(process, silenced_.contains(process) ? VirtualNetwork::End::kSilence : VirtualNetwork::End::kReset);
  const int exit_code = world.ExitCode(process);
  if (exit_code == VirtualWorld::kTerminatedExit) Violate("a process was aborted");
  for (const auto& [id, member] : members_) {
    if (member.process != process || member.is_given_up) continue;
    has_last_left_ = member.has_left;
    if (exit_code == 0) completed_ = std::max(completed_, member.steps);
  }
}

void Job::EndProcess(ProcessId process, VirtualNetwork::End how) {
  if (how == VirtualNetwork::End::kSilence) silenced_.insert(process);
  VirtualWorld::Get().Kill(process);
}

bool Job::IsAskedToLeave(int member) const {
  const Member& asked = members_.at(member);
  return asked.is_asked || VirtualProcesses::Get().IsAskedToEnd(asked.process);
}

// -- The launcher's report --

void Job::OnRankEnd(RankEnd end) {
  if (end.lost.empty() || hosts_.MayBeLost(end.host)) return;
  Violate(absl::StrCat("member ", end.rank, " was lost without a fault of its host"));
}

void Job::OnHelperLine(absl::string_view helper, absl::string_view line) { Say(absl::StrCat(helper, ": ", line)); }

void Job::OnJobFailure(absl::string_view what, int exit_code) {
  if (end_.exit_code == 0) end_ = {.exit_code = exit_code, .why = std::string(what)};
}

// The launcher reports that it gives up a host or member before the other members continue.
void Job::Say(absl::string_view text) {
  const VirtualWorld::Shield shield;
  Log(LogLevel::kInfo, -1, text);
  int killed = 0;
  if (absl::EndsWith(text, "killing it (SIGKILL)") && absl::ConsumePrefix(&text, "member ") &&
      absl::SimpleAtoi(text.substr(0, text.find(' ')), &killed)) {
    CheckKill(killed, text);
  }
  if (!absl::ConsumePrefix(&text, "host ")) return;
  const std::string host(text.substr(0, text.find(' ')));
  if (!absl::ConsumePrefix(&text, absl::StrCat(host, " is lost"))) return;
  ++counts_.lost_hosts;
  if (!hosts_.MayBeLost(host)) Violate(absl::StrCat("host ", host, " is lost without a fault", text));
  for (auto& [id, member] : members_) member.is_given_up = member.is_given_up || member.host == host;
}

// A member that can run notices a failure in time, so the launcher need not kill it to end the epoch.
void Job::CheckKill(int id, absl::string_view why) {
  const auto member = members_.find(id);
  if (member == members_.end()) return;  // its process has not begun
  const bool is_late = absl::StrContains(why, " did not leave epoch") && IsAlive(member->second);
  if (is_late && VirtualWorld::Get().now() - member->second.hurt_until > kTimeToRecover) {
    Violate(absl::StrCat("member ", id, " has not heard of a failure: ", why));
  }
  member->second.is_given_up = true;
}

// -- What members report --

void Job::RecordPlace(int member, const EpochPlace& place) {
  if (place.epoch > epoch_) {
    epoch_ = place.epoch;
    met_ = 0;
    first_left_ = absl::InfiniteDuration();
    ++counts_.epochs;
    epochs_[epoch_].resize(static_cast<size_t>(place.topology.size), -1);
  }
  epochs_[place.epoch][static_cast<size_t>(place.topology.rank)] = member;
  members_[member].epoch = place.epoch;
  if (members_[member].is_given_up) return;  // the place has come late, through an agent that was frozen
  for (const auto& [other, state] : members_) {
    if (state.epoch < 0 || state.epoch == place.epoch || state.is_given_up || !IsAlive(state)) continue;
    Violate(absl::StrCat("member ", member, " has entered epoch ", place.epoch, ", and member ", other,
                         " has not left epoch ", state.epoch));
  }
}

void Job::RecordMet(int64_t epoch) {
  if (epoch == epoch_) ++met_;
}

// If every member can run and every message arrives, all members must notice a failure at about the same time, unless
// they are still connecting and waiting for each other.
void Job::RecordJoin(int member, int64_t epoch, const std::string& why) {
  if (epoch != epoch_ || met_ < epochs_[epoch_].size() || members_[member].is_given_up) return;
  const absl::Duration now = VirtualWorld::Get().now();
  first_left_ = std::min(first_left_, now);
  const bool is_late = now - first_left_ > kTimeToHear;
  if (!is_late || now - hurt_until_ <= kTimeToRecover) return;
  Violate(absl::StrCat("member ", member, " has left epoch ", epoch_, " ", absl::FormatDuration(now - first_left_),
                       " after the first: ", why));
}

void Job::RecordOperation(int member, int64_t epoch) {
  ++counts_.operations;
  if (epoch != epoch_ && !members_[member].is_given_up) {
    Violate(absl::StrCat("member ", member, " has completed an operation of epoch ", epoch, " in epoch ", epoch_));
  }
}

void Job::RecordState(int member, int64_t steps, uint64_t state) {
  ++counts_.steps;
  members_[member].steps = steps;
  if (state != StateAfter(steps)) {
    Violate(absl::StrCat("member ", member, " has a wrong state after ", steps, " steps"));
  }
}

void Job::RecordSource(int member, int64_t epoch, int64_t step) {
  for (const int other : epochs_[epoch]) {
    if (other >= 0 && members_[other].steps > step) {
      Violate(absl::StrCat("member ", member, " goes on from step ", step, ", and member ", other, " has the state of ",
                           members_[other].steps));
    }
  }
  if (step > 0 || epoch == 0) return;
  ++counts_.restarts;
  for (const auto& [other, state] : members_) {
    if (state.steps > 0 && !state.is_given_up && IsAlive(state)) {
      Violate(absl::StrCat("epoch ", epoch, " begins anew, and member ", other, " lives, which has the state of step ",
                           state.steps));
    }
  }
}

uint64_t Job::StateAfter(int64_t steps) {
  if (states_.empty()) states_.push_back(scenario_.seed);
  while (static_cast<int64_t>(states_.size()) <= steps) {
    const auto step = static_cast<int64_t>(states_.size()) - 1;
    states_.push_back(NextState(states_.back(), PlanStep(scenario_.seed, step, Topology{})));
  }
  return states_[static_cast<size_t>(steps)];
}

void Job::CheckTime() {
  hosts_.Check();
  if (VirtualWorld::Get().now() - last_fault_ > kTimeToEnd) Violate("the job has not ended");
}

void Job::CheckEnd() {
  const bool is_done = completed_ == scenario_.steps;
  if (end_.exit_code == 0) {
    // If the last member has left, no member can continue the job.
    if (!is_done && !has_last_left_) Violate(absl::StrCat("the job has ended well after step ", completed_));
    return;
  }
  if (end_.why.empty()) Violate("the job has failed, and does not say why");
  if (is_done) return;  // a member has failed after others had all steps
  ++counts_.given_up;
  if (scenario_.faults.size() < kFaultsToGiveUp) Violate(absl::StrCat("the job has given up: ", end_.why));
}

void Job::AwaitProcesses() {
  VirtualWorld& world = VirtualWorld::Get();
  const absl::Duration deadline = world.now() + kTimeForProcesses;
  const auto is_left = [this](const auto& member) { return IsAlive(member.second); };
  while (hosts_.Check() || std::any_of(members_.begin(), members_.end(), is_left)) {
    if (world.now() > deadline) Violate("processes have outlived their job");
    world.SleepUntil(world.now() + absl::Milliseconds(100));
  }
}

void Job::BringFaults() {
  VirtualWorld& world = VirtualWorld::Get();
  for (const Fault& fault : scenario_.faults) {
    world.SleepUntil(fault.at);
    if (is_over_) return;
    last_fault_ = std::max(last_fault_, world.now() + fault.lasts);
    fault.kind < Fault::kFirstOfHosts ? Bring(fault) : BringToHost(fault);
  }
}

std::optional<int> Job::LivingMember(uint64_t choice, int other_than) const {
  std::vector<int> living;
  for (const auto& [member, state] : members_) {
    if (member != other_than && IsAlive(state)) living.push_back(member);
  }
  if (living.empty()) return std::nullopt;
  return living[choice % living.size()];
}

void Job::Bring(const Fault& fault) {
  VirtualWorld& world = VirtualWorld::Get();
  const std::optional<int> victim = LivingMember(fault.choice);
  const std::optional<int> other = LivingMember(fault.choice2, victim.value_or(-1));
  const bool needs_other = fault.kind == Fault::Kind::kReset || fault.kind == Fault::Kind::kSilence;
  if (!victim || (needs_other && !other)) return;
  ++counts_.faults[static_cast<size_t>(fault.kind)];
  const ProcessId process = members_[*victim].process;
  const int among_calls = static_cast<int>(fault.choice2 % 300);
  switch (fault.kind) {
    case Fault::Kind::kKill:
      return EndProcess(process, VirtualNetwork::End::kReset);
    case Fault::Kind::kPowerLoss:
      Hurt(*victim, absl::ZeroDuration());  // the ranks below it in the tree get no more messages
      return EndProcess(process, VirtualNetwork::End::kSilence);
    case Fault::Kind::kFreeze:
      Hurt(*victim, fault.lasts);
      return world.Freeze(process, world.now() + fault.lasts);
    case Fault::Kind::kStop:
      return Stop(*victim, fault.lasts);
    case Fault::Kind::kReset:
      return network_.Reset(process, members_[*other].process);
    case Fault::Kind::kSilence:
      Hurt(*victim, fault.lasts);
      Hurt(*other, fault.lasts);
      return network_.Silence(process, members_[*other].process, world.now() + fault.lasts);
    case Fault::Kind::kNoMemory:
      Hurt(*victim, absl::InfiniteDuration());
      return world.FailAllocation(process, {.after = among_calls, .times = 1 + static_cast<int>(fault.choice % 5)});
    case Fault::Kind::kNoDescriptor:
      return world.FailDescriptor(process, {.after = among_calls % 4, .times = 1 + static_cast<int>(fault.choice % 5)});
    case Fault::Kind::kNoThread:
      return world.FailThread(process, among_calls % 4);
    case Fault::Kind::kClockJump:
      return world.JumpCalendar(absl::Hours(static_cast<int64_t>(fault.choice % 48) - 24));
    case Fault::Kind::kLeave:
      members_[*victim].is_asked = true;
      return;
    case Fault::Kind::kResize:
      return Resize(fault);
    case Fault::Kind::kMisbehave:
      send(members_[*victim].socket, "nonsense", 8, MSG_DONTWAIT | MSG_NOSIGNAL);
      return;
    default:
      return;  // of hosts
  }
}

void Job::BringToHost(const Fault& fault) {
  const std::string host = HostName(static_cast<int>(fault.choice % static_cast<uint64_t>(scenario_.hosts)));
  const absl::Duration until = VirtualWorld::Get().now() + fault.lasts;
  if (!hosts_.HasAgent(host)) return;
  for (const auto& [id, member] : members_) {
    if (member.host == host) Hurt(id, fault.lasts);
  }
  bool is_hit = true;
  if (fault.kind == Fault::Kind::kAgentKill) is_hit = hosts_.KillAgent(host);
  if (fault.kind == Fault::Kind::kAgentFreeze) is_hit = hosts_.FreezeAgent(host, until);
  if (fault.kind == Fault::Kind::kCutOff) hosts_.CutOff(host, until);
  if (fault.kind == Fault::Kind::kBreak) is_hit = hosts_.Break(host);
  if (fault.kind == Fault::Kind::kHostLoss) {
    for (const auto& [id, member] : members_) {
      if (member.host == host) EndProcess(member.process, VirtualNetwork::End::kSilence);
    }
    hosts_.Lose(host, until);
  }
  if (is_hit) ++counts_.faults[static_cast<size_t>(fault.kind)];
}

void Job::Hurt(int member, absl::Duration lasts) {
  absl::Duration& until = members_[member].hurt_until;
  until = std::max(until, VirtualWorld::Get().now() + lasts);
  hurt_until_ = std::max(hurt_until_, until);
}

void Job::Stop(int member, absl::Duration lasts) {
  VirtualWorld& world = VirtualWorld::Get();
  Hurt(member, lasts);
  const ProcessId process = members_[member].process;
  world.Freeze(process, world.now() + lasts);
  VirtualProcesses::Get().TellMotion(process, SIGSTOP);
  world.SleepUntil(world.now() + lasts);
  VirtualProcesses::Get().TellMotion(process, SIGCONT);
}

void Job::Resize(const Fault& fault) {
  const std::string host = HostName(static_cast<int>(fault.choice2 % static_cast<uint64_t>(scenario_.hosts)));
  int others = 0;
  for (const auto& [name, slots] : slots_) others += name == host ? 0 : slots;
  const int least = std::max(scenario_.min_members - others, 0);
  const int most = std::max(scenario_.max_members - others, least);
  slots_[host] = least + static_cast<int>(fault.choice % static_cast<uint64_t>(most - least + 1));
}

}  // namespace ronda::simulation
