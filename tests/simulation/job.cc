// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/job.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/elastic/membership_message.h"
#include "tests/simulation/member.h"
#include "tests/simulation/training.h"

namespace ronda::simulation {
namespace {

constexpr absl::Duration kLaunchersPeriod = absl::Milliseconds(2);
// The longest time from a job's last fault, or its start, to its end: several rounds of the longest timeouts.
constexpr absl::Duration kTimeToEnd = absl::Seconds(180);
// The longest time between the first and the last member that leave a failed epoch.
constexpr absl::Duration kTimeToHear = absl::Milliseconds(500);
// For this time, a member that was frozen, or cut off, may still be late.
constexpr absl::Duration kTimeToRecover = absl::Seconds(10);
// The launcher may give up only after this many faults.
constexpr size_t kFaultsToGiveUp = 3;

JobMembership::Options MembershipOptions(const Scenario& scenario) {
  return {.hosts = {{.name = "", .slots = scenario.members}},
          .initial_members = scenario.members,
          .min_members = scenario.min_members,
          .max_members = scenario.max_members};
}

}  // namespace

Job::Job(const Scenario& scenario, Counts* counts, std::function<void(const std::string& what)> violate)
    : scenario_(scenario),
      counts_(*counts),
      violate_(std::move(violate)),
      network_({.latency = scenario.latency, .corrupted = scenario.corrupted}),
      membership_(MembershipOptions(scenario)) {}

void Job::Violate(const std::string& what) {
  const VirtualWorld::Shield shield;
  violate_(absl::StrCat("at ", absl::FormatDuration(VirtualWorld::Get().now()), ": ", what));
  std::abort();
}

void Job::Run() {
  std::thread faults([this] { BringFaults(); });
  Apply(membership_.Begin(Now()));
  while (!end_) {
    Step();
    VirtualWorld& world = VirtualWorld::Get();
    world.SleepUntil(world.now() + kLaunchersPeriod);
    if (world.now() - last_fault_ > kTimeToEnd) {
      Violate(absl::StrCat("the job has not ended; its members: ", membership_.Describe(Now())));
    }
  }
  CheckEnd();
  faults.join();
  counts_.messages += network_.messages();
  counts_.halves += network_.halves();
  counts_.descriptors_failed += VirtualWorld::Get().descriptors_failed();
}

void Job::Step() {
  while (!news_.empty()) {
    const News news = std::move(news_.front());
    news_.pop_front();
    Apply(news(Now()));
  }
  std::vector<int> living;
  for (const auto& [member, state] : members_) {
    if (state.socket.get() >= 0) living.push_back(member);
  }
  for (const int member : living) ReadFrom(member);
  RecordExits();
  if (!end_ && membership_.deadline() <= Now()) Apply(membership_.OnTime(Now()));
}

void Job::ReadFrom(int member) {
  while (!end_) {
    const absl::StatusOr<std::string> text = ReceiveMembershipMessage(members_[member].socket.get());
    if (!text.ok() || text->empty()) return;  // its exit reports its end
    const absl::StatusOr<MemberMessage> message = DecodeMemberMessage(*text);
    if (message.ok()) Record(member, *message);
    Apply(message.ok() ? membership_.OnMessage(member, *message, Now())
                       : membership_.OnMisbehaviour(member, message.status().message(), Now()));
  }
}

void Job::Record(int member, const MemberMessage& message) {
  if (const auto* met = std::get_if<EpochMet>(&message); met != nullptr && met->epoch == epoch_) ++met_;
  if (const auto* join = std::get_if<JoinRequest>(&message)) RecordJoin(member, *join);
}

// If every member can run, and every message arrives, all of them notice a failure at about the same time. This is not
// so while they meet, because then they wait for each other.
void Job::RecordJoin(int member, const JoinRequest& join) {
  if (epoch_ < 0 || join.last_epoch != epoch_ || met_ < epochs_[epoch_].size()) return;
  const absl::Duration now = VirtualWorld::Get().now();
  first_left_ = std::min(first_left_, now);
  const bool is_late = now - first_left_ > kTimeToHear;
  if (!is_late || now - hurt_until_ <= kTimeToRecover) return;
  Violate(absl::StrCat("member ", member, " has left epoch ", epoch_, " ", absl::FormatDuration(now - first_left_),
                       " after the first: ", join.reason));
}

void Job::RecordExits() {
  VirtualWorld& world = VirtualWorld::Get();
  for (auto& [member, state] : members_) {
    if (end_ || state.socket.get() < 0 || world.IsAlive(state.process)) continue;
    const int exit_code = world.ExitCode(state.process);
    // The fault has already decided the state of a killed member's connections.
    if (exit_code != VirtualWorld::kKilledExit) network_.Drop(state.process, VirtualNetwork::End::kReset);
    ReadFrom(member);
    state.socket = UniqueFd();
    if (exit_code == VirtualWorld::kTerminatedExit) Violate(absl::StrCat("member ", member, " was aborted"));
    has_last_left_ = state.has_left;
    if (exit_code == 0) completed_ = std::max(completed_, state.steps);
    if (!end_) Apply(membership_.OnExit(member, {.exit_code = exit_code, .describe = "ended"}, Now()));
  }
}

void Job::Apply(const JobMembership::Actions& actions) {
  for (const JobMembership::Action& action : actions) {
    if (const auto* start = std::get_if<JobMembership::StartMember>(&action)) Start(*start);
    if (const auto* kill = std::get_if<JobMembership::KillMember>(&action)) Kill(*kill);
    if (const auto* ask = std::get_if<JobMembership::AskToLeave>(&action)) members_[ask->member].is_asked = true;
    if (const auto* end = std::get_if<JobMembership::EndJob>(&action)) end_ = *end;
    if (const auto* send = std::get_if<JobMembership::SendMessage>(&action)) {
      if (const auto* place = std::get_if<EpochPlace>(&send->message)) Place(send->member, *place);
      SendMembershipMessage(members_[send->member].socket.get(), Encode(send->message)).IgnoreError();
    }
  }
}

void Job::Start(const JobMembership::StartMember& start) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) Violate("no socket");
  Member& member = members_[start.member];
  member.socket = UniqueFd(ends[0]);
  member.process = VirtualWorld::Get().StartProcess(
      absl::StrCat("member ", start.member),
      [this, id = start.member, socket = ends[1]] { return RunMember(id, UniqueFd(socket)); });
}

int Job::RunMember(int member, UniqueFd socket) {
  VirtualWorld& world = VirtualWorld::Get();
  world.SleepUntil(world.now() + world.RandomDuration(absl::Milliseconds(20)));
  try {
    return simulation::Member(*this, member, std::move(socket)).Run();
  } catch (const std::exception&) {
    return VirtualWorld::kTerminatedExit;  // as of a program that catches nothing
  }
}

// The launcher places all members of an epoch before any other thread runs.
void Job::Place(int member, const EpochPlace& place) {
  if (place.epoch > epoch_) {
    epoch_ = place.epoch;
    met_ = 0;
    first_left_ = absl::InfiniteDuration();
    ++counts_.epochs;
    epochs_[epoch_].resize(static_cast<size_t>(place.topology.size), -1);
  }
  epochs_[place.epoch][static_cast<size_t>(place.topology.rank)] = member;
}

// A member that can run notices a failure in time, so the launcher need not kill it to end the epoch.
void Job::Kill(const JobMembership::KillMember& kill) {
  const Member& member = members_[kill.member];
  VirtualWorld& world = VirtualWorld::Get();
  const bool is_late = absl::StrContains(kill.why, "did not leave") && world.IsAlive(member.process);
  if (is_late && world.now() - member.hurt_until > kTimeToRecover) {
    Violate(absl::StrCat("member ", kill.member, " has not heard of a failure: it ", kill.why));
  }
  EndProcess(member.process, VirtualNetwork::End::kReset);
}

void Job::EndProcess(ProcessId process, VirtualNetwork::End how) {
  VirtualWorld::Get().Kill(process);
  network_.Drop(process, how);
}

void Job::RecordEpoch(int member, int64_t epoch) {
  members_[member].epoch = epoch;
  if (epoch < 0) return;
  for (const auto& [other, state] : members_) {
    if (state.epoch < 0 || state.epoch == epoch || !VirtualWorld::Get().IsAlive(state.process)) continue;
    Violate(absl::StrCat("member ", member, " has entered epoch ", epoch, ", and member ", other,
                         " has not left epoch ", state.epoch));
  }
}

void Job::RecordOperation(int member, int64_t epoch) {
  ++counts_.operations;
  if (epoch != epoch_) {
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
  for (const int other : MembersOf(epoch)) {
    if (members_[other].steps > step) {
      Violate(absl::StrCat("member ", member, " goes on from step ", step, ", and member ", other, " has the state of ",
                           members_[other].steps));
    }
  }
  if (step > 0 || epoch == 0) return;
  ++counts_.restarts;
  for (const auto& [other, state] : members_) {
    if (state.steps > 0 && VirtualWorld::Get().IsAlive(state.process)) {
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

void Job::CheckEnd() {
  const bool is_done = completed_ == scenario_.steps;
  if (end_->exit_code == 0) {
    // When the last member leaves, no other can continue the job.
    if (!is_done && !has_last_left_) Violate(absl::StrCat("the job has ended well after step ", completed_));
    return;
  }
  if (end_->why.empty()) Violate("the job has failed, and does not say why");
  if (is_done) return;  // a member has failed after others had all steps
  ++counts_.given_up;
  if (scenario_.faults.size() < kFaultsToGiveUp) Violate(absl::StrCat("the job has given up: ", end_->why));
}

void Job::BringFaults() {
  VirtualWorld& world = VirtualWorld::Get();
  for (const Fault& fault : scenario_.faults) {
    world.SleepUntil(fault.at);
    if (end_) return;
    last_fault_ = world.now();
    Bring(fault);
  }
}

std::optional<int> Job::LivingMember(uint64_t choice, int other_than) const {
  std::vector<int> living;
  for (const auto& [member, state] : members_) {
    if (member != other_than && VirtualWorld::Get().IsAlive(state.process)) living.push_back(member);
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
      return Resize(fault.choice);
    case Fault::Kind::kMisbehave:
      news_.push_back([this, member = *victim](absl::Time now) {
        return membership_.OnMisbehaviour(member, "said nonsense", now);
      });
  }
}

void Job::Hurt(int member, absl::Duration lasts) {
  absl::Duration& until = members_[member].hurt_until;
  until = std::max(until, VirtualWorld::Get().now() + lasts);
  hurt_until_ = std::max(hurt_until_, until);
}

void Job::Stop(int member, absl::Duration lasts) {
  VirtualWorld& world = VirtualWorld::Get();
  Hurt(member, lasts);
  world.Freeze(members_[member].process, world.now() + lasts);
  news_.push_back([this, member](absl::Time now) { return membership_.OnStop(member, now); });
  world.SleepUntil(world.now() + lasts);
  news_.push_back([this, member](absl::Time now) { return membership_.OnContinue(member, now); });
}

void Job::Resize(uint64_t choice) {
  const int slots = scenario_.min_members +
                    static_cast<int>(choice % static_cast<uint64_t>(scenario_.max_members - scenario_.min_members + 1));
  news_.push_back([this, slots](absl::Time now) { return membership_.OnHosts({{.name = "", .slots = slots}}, now); });
}

}  // namespace ronda::simulation
