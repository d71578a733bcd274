// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/membership/membership.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// If this number of consecutive epochs fail at the same step, the job ends.
constexpr int kMaxFailuresAtStep = 3;

// If the members of this number of consecutive epochs fail to connect to each other, the job ends. The number is higher
// than kMaxFailuresAtStep, because the program is not necessarily the cause: somebody else may be killing members.
constexpr int kMaxFailuresToMeet = 10;

// How long a member may take to end after it has received an EndNotice.
constexpr absl::Duration kDismissalTimeout = absl::Seconds(5);

// The exit code of a failed job if no member's exit code shows the cause.
constexpr int kLaunchersExitCode = 1;

std::string Members(int count) { return absl::StrCat(count, count == 1 ? " member" : " members"); }

}  // namespace

JobMembership::JobMembership(const Options& options)
    : options_(options),
      slots_({.min_slot = options.min_cooldown,
              .max_slot = options.max_cooldown,
              .min_host = options.min_host_cooldown,
              .max_host = options.max_host_cooldown}) {}

JobMembership::Actions JobMembership::Begin(absl::Time now) {
  slots_.List(options_.hosts);
  return Advance(now);
}

JobMembership::Actions JobMembership::OnMessage(int member, const MemberMessage& message, absl::Time now) {
  const auto found = members_.find(member);
  if (is_over_ || found == members_.end()) return {};
  // A member that was told to end, or was killed, no longer takes part in the job, so its messages are ignored.
  if (IsExitAwaited(found->second) || found->second.state == State::kDismissed) return {};
  if (const auto* join = std::get_if<JoinRequest>(&message)) OnJoin(member, &found->second, *join, now);
  if (const auto* met = std::get_if<EpochMet>(&message)) OnMet(member, &found->second, *met);
  if (std::holds_alternative<LeaveRequest>(message)) OnLeave(member, &found->second, now);
  return Advance(now);
}

JobMembership::Actions JobMembership::OnMisbehaviour(int member, absl::string_view why, absl::Time now) {
  const auto found = members_.find(member);
  if (is_over_ || found == members_.end()) return {};
  Kill(member, &found->second, why);
  return Advance(now);
}

JobMembership::Actions JobMembership::OnExit(int member, const Exit& exit, absl::Time now) {
  const auto found = members_.find(member);
  if (is_over_ || found == members_.end()) return {};
  const Member ended = std::move(found->second);
  members_.erase(found);
  // If the launcher asked the member to leave, its slot becomes free, and a new member can use it when the host is
  // listed again.
  ended.has_left&& ended.asked_in < 0 ? slots_.Leave(ended.slot) : slots_.Free(ended.slot);
  if (exit.exit_code != 0) {
    OnDeath(member, ended, exit, now);
  } else if (!ended.has_left && !ended.is_dismissed) {
    OnGoodEnd(ended, now);
  }
  return Advance(now);
}

JobMembership::Actions JobMembership::OnStop(int member, absl::Time now) {
  const auto found = members_.find(member);
  if (is_over_ || found == members_.end()) return {};
  if (found->second.stop_deadline == absl::InfiniteFuture()) found->second.stop_deadline = now + options_.stop_timeout;
  return Advance(now);
}

JobMembership::Actions JobMembership::OnContinue(int member, absl::Time now) {
  const auto found = members_.find(member);
  if (is_over_ || found == members_.end()) return {};
  found->second.stop_deadline = absl::InfiniteFuture();
  return Advance(now);
}

JobMembership::Actions JobMembership::OnHosts(const std::vector<Host>& hosts, absl::Time now) {
  if (is_over_) return {};
  slots_.List(hosts);
  return Advance(now);
}

JobMembership::Actions JobMembership::OnHostLost(absl::string_view host, absl::Time now) {
  const std::optional<size_t> known = slots_.Find(host);
  if (is_over_ || !known.has_value()) return {};
  slots_.OnLoss(*known, now);
  // The members of the lost host no longer count from now on, although their exits are reported later.
  for (auto& [id, member] : members_) {
    if (member.slot.host == *known && member.state != State::kKilled) member.state = State::kLost;
  }
  return Advance(now);
}

void JobMembership::SetMeetingPoint(absl::string_view host, MeetingPoint point) {
  if (const auto known = slots_.Find(host); known.has_value()) slots_.set_meeting_point(*known, std::move(point));
}

JobMembership::Actions JobMembership::OnTime(absl::Time now) {
  if (is_over_) return {};
  return Advance(now);
}

absl::Time JobMembership::deadline() const {
  if (is_over_) return absl::InfiniteFuture();
  absl::Time earliest = std::min(join_deadline_, elastic_deadline_);
  for (const auto& [id, member] : members_) {
    if (!IsExitAwaited(member)) earliest = std::min({earliest, member.deadline, member.stop_deadline});
  }
  return MayStart() ? std::min(earliest, slots_.UsableFrom(ChoiceOfSlots())) : earliest;
}

// -- Events of a member --

void JobMembership::OnJoin(int id, Member* member, const JoinRequest& join, absl::Time now) {
  if (member->state == State::kLeaving) {
    Dismiss(id, member, "it has asked to leave", now);
    return;
  }
  if (member->state == State::kWaiting || join.last_epoch > epoch_) {
    Kill(id, member, "asked for a place out of turn");
    return;
  }
  const bool is_first = epoch_ < 0 && !is_start_over_ && join_deadline_ == absl::InfiniteFuture();
  member->has_joined = true;
  const bool is_new = std::exchange(member->state, State::kWaiting) == State::kStarting;
  if (is_new) {
    start_failures_ = 0;
    start_failure_.reset();
    slots_.OnStart(member->slot.host);
    if (is_first) join_deadline_ = now + options_.start_timeout;
  } else if (join_deadline_ == absl::InfiniteFuture()) {
    // Members that are connecting to each other may be waiting for a member that has died.
    join_timeout_ =
        options_.join_timeout + (IsAnyIn(State::kMeeting) ? options_.meeting_timeout : absl::ZeroDuration());
    join_deadline_ = now + join_timeout_;
  }
  member->deadline = absl::InfiniteFuture();
  member->step = join.step;
  member->reason = join.reason;
  if (is_finishing_ && epoch_ >= 0 && member->epoch < 0) Dismiss(id, member, "the job is finishing", now);
}

void JobMembership::OnMet(int id, Member* member, const EpochMet& met) {
  if (member->state == State::kLeaving) return;
  if (member->state != State::kMeeting || met.epoch != epoch_) {
    Kill(id, member, absl::StrCat("said that it has met epoch ", met.epoch, ", where it has no place"));
    return;
  }
  member->state = State::kRunning;
  if (--unmet_ == 0) failures_to_meet_ = 0;
  member->deadline = absl::InfiniteFuture();
}

void JobMembership::OnLeave(int id, Member* member, absl::Time now) {
  if (member->state == State::kWaiting || member->state == State::kStarting) {
    member->has_left = true;
    Dismiss(id, member, "it has asked to leave", now);
  } else {
    member->has_left = true;
    member->state = State::kLeaving;
    member->deadline = absl::InfiniteFuture();
  }
  // If the last member asks to leave, no member remains, so the user probably wants the whole job to end.
  const bool is_anybody_left = IsEpochOccupied() || IsAnyIn(State::kWaiting) || IsAnyIn(State::kStarting);
  if (!is_anybody_left && member->asked_in < 0) BeginToFinish(now);
}

void JobMembership::OnDeath(int id, const Member& member, const Exit& exit, absl::Time now) {
  const Failure failure = {
      .exit_code = exit.exit_code,
      .what = absl::StrCat("member ", id, " ", member.killed_because.empty() ? exit.describe : member.killed_because)};
  if (member.epoch == epoch_) failure_ = failure;
  if (member.has_left || member.is_dismissed || !IsListed(member)) return;
  const bool is_own = exit.cause == Exit::Cause::kItself;
  if (is_own) slots_.OnDeath(member.slot, now);
  if (member.has_joined) return;
  ++start_failures_;
  start_failure_ = failure;
  if (is_own) slots_.OnFailureToStart(member.slot.host, now);
}

void JobMembership::OnGoodEnd(const Member& member, absl::Time now) {
  // If a new member finds no work and ends, it is not replaced.
  if (member.epoch < 0 && epoch_ >= 0) {
    slots_.Leave(member.slot);
    return;
  }
  BeginToFinish(now);
}

void JobMembership::BeginToFinish(absl::Time now) {
  is_finishing_ = true;
  elastic_deadline_ = absl::InfiniteFuture();
  for (auto& [id, member] : members_) {
    if (member.epoch >= 0 || epoch_ < 0) continue;
    if (member.state == State::kStarting) Kill(id, &member, "was ended: the job is finishing");
    if (member.state == State::kWaiting) Dismiss(id, &member, "the job is finishing", now);
  }
}

// -- State transitions after an event --

JobMembership::Actions JobMembership::Advance(absl::Time now) {
  CallOffJoining();
  KillOverdue(now);
  EmptyUnlistedHosts(now);
  AdmitJoiningMembers();
  Meet(now);
  StartMembers(now);
  EndIfHopeless(now);
  return std::exchange(actions_, {});
}

// The members of an epoch have a deadline for joining again, because other members with the job's state are waiting. If
// all of those have died, the late members may be the last with the state. So they no longer have a deadline.
void JobMembership::CallOffJoining() {
  const auto has_state = [](const auto& one) { return one.second.state == State::kWaiting && one.second.epoch >= 0; };
  if (epoch_ >= 0 && std::none_of(members_.begin(), members_.end(), has_state)) {
    join_deadline_ = absl::InfiniteFuture();
  }
}

void JobMembership::KillOverdue(absl::Time now) {
  const bool is_joining_over = now >= join_deadline_;
  if (is_joining_over) {
    join_deadline_ = absl::InfiniteFuture();
    is_start_over_ = true;
  }
  const bool are_others_gone = is_joining_over || join_deadline_ != absl::InfiniteFuture();
  for (auto& [id, member] : members_) {
    if (IsExitAwaited(member)) continue;
    const bool is_stopped = member.stop_deadline != absl::InfiniteFuture();
    if (is_stopped && are_others_gone && IsInEpoch(member)) {
      Kill(id, &member, absl::StrCat("is stopped, and others have left epoch ", epoch_));
    } else if (now >= member.stop_deadline) {
      Kill(id, &member, absl::StrCat("was stopped for ", absl::FormatDuration(options_.stop_timeout)));
    } else if (is_joining_over && IsInEpoch(member)) {
      Kill(id, &member,
           absl::StrCat("did not leave epoch ", epoch_, " within ", absl::FormatDuration(join_timeout_),
                        ", as others had"));
    } else if (now < member.deadline || member.state == State::kRunning) {
      continue;
    } else if (member.state == State::kDismissed) {
      Kill(id, &member, absl::StrCat("did not end within ", absl::FormatDuration(kDismissalTimeout)));
    } else {
      const absl::string_view what = member.state == State::kStarting ? "ask for a place" : "meet the others";
      Kill(id, &member,
           absl::StrCat("did not ", what, " within ", absl::FormatDuration(options_.elastic_timeout),
                        " (--elastic-timeout)"));
    }
  }
}

void JobMembership::EmptyUnlistedHosts(absl::Time now) {
  const bool do_enough_stay = DoEnoughStay();
  for (auto& [id, member] : members_) {
    const bool is_running = member.state == State::kRunning;
    if (is_running && (IsListed(member) || !do_enough_stay)) member.deadline = absl::InfiniteFuture();
    if (IsListed(member)) continue;
    const std::string why = absl::StrCat("its host ", slots_.name(member.slot.host), " takes no member any more");
    if (is_running && do_enough_stay) AskToLeaveItsHost(id, &member, why, now);
    if (member.state == State::kStarting) Kill(id, &member, absl::StrCat("was ended: ", why));
    if (member.state == State::kWaiting && member.epoch < 0) Dismiss(id, &member, why, now);
  }
}

// Only members hold the job's state; the launcher has no copy. So members on other hosts must have the state before the
// members of an unlisted host leave. A member that was asked to leave will do so, even if its host is listed again.
bool JobMembership::DoEnoughStay() const {
  const auto stays = [this](const auto& one) {
    return one.second.state == State::kRunning && IsListed(one.second) && one.second.asked_in < 0;
  };
  return !is_finishing_ && std::count_if(members_.begin(), members_.end(), stays) >= options_.min_members;
}

void JobMembership::AskToLeaveItsHost(int id, Member* member, absl::string_view why, absl::Time now) {
  if (member->asked_in == epoch_ && now >= member->deadline) {
    Kill(id, member,
         absl::StrCat("did not leave, as it was asked to, within ", absl::FormatDuration(options_.elastic_timeout),
                      " (--elastic-timeout)"));
    return;
  }
  if (member->deadline == absl::InfiniteFuture()) member->deadline = now + options_.elastic_timeout;
  if (member->asked_in == epoch_) return;
  member->asked_in = epoch_;
  actions_.push_back(AskToLeave{.member = id, .why = absl::StrCat("is asked to leave: ", why)});
}

// Tells the members of the running epoch to end it, so that the waiting members can take part in the next one.
void JobMembership::AdmitJoiningMembers() {
  if (join_deadline_ != absl::InfiniteFuture() || WaitingMembers().empty()) return;
  for (auto& [id, member] : members_) {
    if (member.state != State::kRunning || member.change == Member::Change::kTold) continue;
    member.change = Member::Change::kTold;
    Send(id, ChangeNotice{});
  }
}

void JobMembership::Meet(absl::Time now) {
  if (IsEpochOccupied()) return;
  if (!is_finishing_ && (epoch_ >= 0 || next_member_ == 0)) {
    elastic_deadline_ = std::min(elastic_deadline_, now + options_.elastic_timeout);
  }
  const std::vector<int> waiting = WaitingMembers();
  if (static_cast<int>(waiting.size()) < options_.min_members) return;
  if (epoch_ < 0 && IsAnyIn(State::kStarting) && !is_start_over_) return;
  CountFailure(waiting);
  if (is_over_) return;
  if (epoch_ >= 0 && options_.reset_limit.has_value() && epoch_ >= *options_.reset_limit) {
    End(kLaunchersExitCode,
        absl::StrCat("the members of the job are to change again, and --reset-limit ", *options_.reset_limit,
                     " has been reached",
                     failure_.has_value() ? absl::StrCat("; the last failure: ", failure_->what) : ""));
    return;
  }
  Place(waiting, now);
}

// Updates the number of consecutive epochs that failed at the same step.
void JobMembership::CountFailure(const std::vector<int>& waiting) {
  std::string reason;
  int64_t newest = -1;
  for (const int id : waiting) {
    const Member& member = members_.at(id);
    newest = std::max(newest, member.step);
    if (member.epoch == epoch_ && reason.empty()) reason = member.reason;
  }
  if (failure_.has_value()) reason = absl::StrCat(failure_->what, reason.empty() ? "" : "; ", reason);
  if (epoch_ < 0 || reason.empty()) return;
  if (unmet_ > 0) return CountFailureToMeet(reason);
  failures_at_step_ = failed_step_ == newest ? failures_at_step_ + 1 : 1;
  failed_step_ = newest;
  if (failures_at_step_ < kMaxFailuresAtStep) return;
  const std::string step = newest < 0 ? "before the first step was complete"
                                      : absl::StrCat("at the same step (the newest that is complete: ", newest, ")");
  End(failure_.has_value() ? failure_->exit_code : kLaunchersExitCode,
      absl::StrCat(kMaxFailuresAtStep, " epochs in a row have failed ", step, "; the last failure: ", reason));
}

void JobMembership::CountFailureToMeet(absl::string_view reason) {
  if (++failures_to_meet_ < kMaxFailuresToMeet) return;
  End(failure_.has_value() ? failure_->exit_code : kLaunchersExitCode,
      absl::StrCat("the members of ", kMaxFailuresToMeet,
                   " epochs in a row could not meet; the last failure: ", reason));
}

void JobMembership::Place(const std::vector<int>& waiting, absl::Time now) {
  ++epoch_;
  join_deadline_ = elastic_deadline_ = absl::InfiniteFuture();
  failure_.reset();
  unmet_ = static_cast<int>(waiting.size());
  const std::vector<int> members = InOrderOfHosts(waiting);
  std::vector<EpochPlace> places = PlacesOf(members);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    Member& member = members_.at(members[rank]);
    member.state = State::kMeeting;
    member.epoch = epoch_;
    member.change = Member::Change::kUntold;
    member.deadline = now + options_.elastic_timeout;
    Send(members[rank], std::move(places[rank]));
  }
}

// Groups the members by host. The host with the oldest member comes first. `members` must be sorted by age.
std::vector<int> JobMembership::InOrderOfHosts(const std::vector<int>& members) const {
  std::vector<size_t> hosts;
  for (const int id : members) {
    const size_t host = members_.at(id).slot.host;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  std::vector<int> ordered;
  for (const size_t host : hosts) {
    std::copy_if(members.begin(), members.end(), std::back_inserter(ordered),
                 [&](int id) { return members_.at(id).slot.host == host; });
  }
  return ordered;
}

// Returns the places of `members`, which must be sorted by rank, with members of the same host next to each other.
std::vector<EpochPlace> JobMembership::PlacesOf(const std::vector<int>& members) const {
  std::vector<size_t> hosts;
  std::vector<int> sizes;  // the members on each of these hosts
  for (const int id : members) {
    const size_t host = members_.at(id).slot.host;
    if (hosts.empty() || hosts.back() != host) {
      hosts.push_back(host);
      sizes.push_back(0);
    }
    ++sizes.back();
  }
  const MeetingPoint point = hosts.size() == 1 ? MeetingPoint() : slots_.meeting_point(hosts.front());
  std::vector<EpochPlace> places;
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (int local = 0; local < sizes[host]; ++local) {
      const auto has_such = [local](int size) { return size > local; };
      const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(host);
      places.push_back(
          {.epoch = epoch_,
           .topology = {.rank = static_cast<RankId>(places.size()),
                        .size = static_cast<int>(members.size()),
                        .local_rank = local,
                        .local_size = sizes[host],
                        .cross_rank = static_cast<int>(std::count_if(sizes.begin(), end, has_such)),
                        .cross_size = static_cast<int>(std::count_if(sizes.begin(), sizes.end(), has_such))},
           .master_address = point.address,
           .master_port = point.port});
    }
  }
  return places;
}

void JobMembership::StartMembers(absl::Time now) {
  while (MayStart()) {
    const std::optional<SlotTable::SlotId> slot = slots_.FindUsable(ChoiceOfSlots(), now);
    if (!slot.has_value()) return;
    const int id = next_member_++;
    slots_.Occupy(*slot);
    members_[id] = {.slot = *slot, .deadline = now + options_.elastic_timeout};
    actions_.push_back(StartMember{
        .member = id, .host = slots_.name(slot->host), .slot = slot->slot, .slots = slots_.listed_slots(slot->host)});
  }
}

void JobMembership::EndIfHopeless(absl::Time now) {
  if (is_over_ || IsEpochOccupied()) return;
  if (is_finishing_ && members_.empty()) {
    End(failure_.has_value() ? failure_->exit_code : 0, failure_.has_value() ? failure_->what : "");
    return;
  }
  const int waiting = static_cast<int>(WaitingMembers().size());
  const std::string shortage = absl::StrCat(Members(waiting), waiting == 1 ? " waits" : " wait",
                                            " for the others, and the job needs ", options_.min_members, " (--min-np)");
  const std::string cause = failure_.has_value() ? absl::StrCat("; ", failure_->what) : "";
  if (is_finishing_) {
    // Members that are still starting would soon find that the job is over, and end.
    if (waiting > 0 && CountUseful() == waiting) {
      End(failure_.has_value() ? failure_->exit_code : kLaunchersExitCode,
          absl::StrCat("others have ended well, but ", shortage, cause));
    }
  } else if (slots_.DoAllFail() && start_failure_.has_value() && CountUseful() < options_.min_members) {
    End(start_failure_->exit_code,
        absl::StrCat(start_failures_, " members in a row have ended before they joined the job: ", shortage,
                     "; the last one: ", start_failure_->what));
  } else if (now >= elastic_deadline_) {
    End(kLaunchersExitCode,
        absl::StrCat("there were not enough members for ", absl::FormatDuration(options_.elastic_timeout),
                     " (--elastic-timeout): ", shortage, cause));
  }
}

void JobMembership::Kill(int id, Member* member, absl::string_view why) {
  if (IsExitAwaited(*member)) return;
  member->state = State::kKilled;
  member->killed_because = std::string(why);
  actions_.push_back(KillMember{.member = id, .why = std::string(why)});
}

void JobMembership::Dismiss(int id, Member* member, absl::string_view why, absl::Time now) {
  member->state = State::kDismissed;
  member->is_dismissed = true;
  member->deadline = now + kDismissalTimeout;
  Send(id, EndNotice{.reason = std::string(why)});
}

void JobMembership::End(int exit_code, std::string why) {
  is_over_ = true;
  actions_.push_back(EndJob{.exit_code = exit_code, .why = std::move(why)});
}

bool JobMembership::IsAnyIn(State state) const {
  return std::any_of(members_.begin(), members_.end(), [state](const auto& one) { return one.second.state == state; });
}

std::vector<int> JobMembership::WaitingMembers() const {
  std::vector<int> waiting;
  for (const auto& [id, member] : members_) {
    if (member.state == State::kWaiting) waiting.push_back(id);
  }
  return waiting;
}

int JobMembership::CountUseful() const {
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [](const auto& one) { return IsUseful(one.second); }));
}

int JobMembership::CountListed() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [this](const auto& one) {
    return IsUseful(one.second) && IsListed(one.second);
  }));
}

// Decides which slots may get new members. The slot of a member that has left for good gets a new member only if the
// job is too small.
SlotTable::Choice JobMembership::ChoiceOfSlots() const {
  return CountUseful() < options_.min_members ? SlotTable::Choice::kFreeOrLeft : SlotTable::Choice::kFree;
}

bool JobMembership::MayStart() const {
  if (is_over_ || is_finishing_) return false;
  return CountListed() < (epoch_ < 0 ? options_.initial_members : options_.max_members);
}

}  // namespace ronda
