// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/membership_model/membership_world.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/elastic/membership_message.h"

namespace ronda {
namespace {

JobMembership::MeetingPoint MeetingPointOf(size_t host) {
  return {.address = absl::StrCat("10.0.0.", host), .port = 4000 + static_cast<int>(host)};
}

}  // namespace

MembershipWorld::MembershipWorld(const Scope* scope)
    : scope_(scope), membership_(scope->options), hosts_(scope->hosts.size()) {
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (const auto& listed : scope->options.hosts) {
      if (listed.name == scope->hosts[host].name) hosts_[host].listed = listed.slots;
    }
  }
  Apply(membership_.Begin(now_));
}

// -- The epochs, as their members see them --

int MembershipWorld::CountIn(int64_t epoch) const {
  return static_cast<int>(
      std::count_if(processes_.begin(), processes_.end(), [epoch](const auto& one) { return one.second.IsIn(epoch); }));
}

// An epoch is broken once one of its members no longer takes part in operations, unless that member has finished its
// program.
bool MembershipWorld::IsBroken(int64_t epoch) const {
  const Epoch& of = epochs_[static_cast<size_t>(epoch)];
  if (of.bad_exits > 0 || (of.good_exits > 0 && !HasFinished(epoch))) return true;
  return CountIn(epoch) < of.size - of.good_exits;
}

bool MembershipWorld::IsComplete(int64_t epoch) const {
  return CountIn(epoch) == epochs_[static_cast<size_t>(epoch)].size;
}

bool MembershipWorld::HaveAllMet(int64_t epoch) const {
  return IsComplete(epoch) && std::none_of(processes_.begin(), processes_.end(), [epoch](const auto& one) {
           return one.second.IsIn(epoch) && one.second.stage == Stage::kMeeting;
         });
}

bool MembershipWorld::IsAnybodyToldOf(int64_t epoch) const {
  return std::any_of(processes_.begin(), processes_.end(), [epoch](const auto& one) {
    const ModelProcess& process = one.second;
    return process.IsIn(epoch) && (process.is_told_of_change || process.is_leaving);
  });
}

int MembershipWorld::CountThoseThatStay() const {
  return static_cast<int>(std::count_if(processes_.begin(), processes_.end(), [this](const auto& one) {
    const ModelProcess& process = one.second;
    return process.stage == Stage::kTraining && !process.is_leaving && !process.is_asked && IsListed(process);
  }));
}

// -- Possible moves --

void MembershipWorld::AddStepsOf(int id, const ModelProcess& process, std::vector<Move>* moves) const {
  if (process.stage == Stage::kKilled) moves->push_back({Kind::kDies, id});
  if (process.stage == Stage::kLost) moves->push_back({Kind::kEndIsTold, id});
  if (process.stage == Stage::kKilled || process.stage == Stage::kLost || process.is_stopped) return;
  if (process.stage == Stage::kToldToEnd) moves->push_back({Kind::kObeys, id});
  if (process.stage == Stage::kStarting) moves->push_back({Kind::kJoins, id});
  if (process.is_asked && !process.is_leaving && !process.IsDoomed()) {
    moves->push_back({Kind::kDiesAsAsked, id});
    if (process.stage != Stage::kMeeting) moves->push_back({Kind::kSaysThatItLeaves, id});
  }
  if (process.IsIn(process.epoch)) AddEpochStepsOf(id, process, moves);
}

void MembershipWorld::AddEpochStepsOf(int id, const ModelProcess& process, std::vector<Move>* moves) const {
  const int64_t epoch = process.epoch;
  const bool is_broken = IsBroken(epoch);
  const bool is_training = process.stage == Stage::kTraining;
  const bool is_to_change = is_training && IsComplete(epoch) && IsAnybodyToldOf(epoch);
  if (is_broken) moves->push_back({Kind::kFails, id});
  if (process.is_leaving && (is_broken || is_to_change)) moves->push_back({Kind::kLeaves, id});
  if (!process.is_leaving && is_to_change) moves->push_back({Kind::kChanges, id});
  // After one member has met all others, the rest can report the same, even if some members have already gone.
  const bool can_meet = !is_broken || epochs_[static_cast<size_t>(epoch)].has_met;
  if (!is_training && can_meet) moves->push_back({Kind::kMeets, id});
  const bool is_at_its_end = HasFinished(epoch) || (HaveAllMet(epoch) && !IsAnybodyToldOf(epoch));
  if (is_training && is_at_its_end && !is_broken) moves->push_back({Kind::kFinishes, id});
}

void MembershipWorld::AddEvents(bool is_quiet, std::vector<Move>* moves) const {
  for (const auto& [id, process] : processes_) {
    if (process.stage == Stage::kKilled || process.stage == Stage::kLost) continue;
    moves->push_back({Kind::kIsKilled, id});
    moves->push_back({Kind::kSpeaksNonsense, id});
    if (process.is_stopped) continue;
    moves->push_back({Kind::kIsStopped, id});
    if (process.stage == Stage::kTraining && !process.is_leaving) moves->push_back({Kind::kAsksToLeave, id});
  }
  if (!is_quiet && membership_.deadline() < absl::InfiniteFuture()) moves->push_back({Kind::kAllAreSlow});
  if (scope_->host_changes == Scope::Hosts::kStay) return;
  std::set<size_t> occupied;
  for (const auto& [id, process] : processes_) occupied.insert(process.host);
  for (const size_t host : occupied) moves->push_back({Kind::kHostIsLost, static_cast<int>(host)});
  for (size_t host = 0; host < hosts_.size(); ++host) {
    moves->push_back({Kind::kHostIsListedOrNot, static_cast<int>(host)});
  }
}

std::vector<MembershipWorld::Move> MembershipWorld::Moves() const {
  std::vector<Move> moves;
  for (const auto& [id, process] : processes_) AddStepsOf(id, process, &moves);
  const bool is_quiet = moves.empty();
  if (is_quiet) {
    if (membership_.deadline() == absl::InfiniteFuture()) return moves;
    moves.push_back({Kind::kTimePasses});
  }
  if (events_ < scope_->events) AddEvents(is_quiet, &moves);
  return moves;
}

void MembershipWorld::Do(const Move& move) {
  if (move.kind < Kind::kIsKilled) return DoStep(move);
  ++events_;
  DoEvent(move);
}

void MembershipWorld::DoStep(const Move& move) {
  switch (move.kind) {
    case Kind::kDies:
    case Kind::kEndIsTold:
      return Exit(move.who, 137);
    case Kind::kObeys:
      return Exit(move.who, 1);
    case Kind::kJoins:
    case Kind::kChanges:
      return Join(move.who, "");
    case Kind::kFails:
      return Join(move.who, "peer failed");
    case Kind::kLeaves:
      return Exit(move.who, 0);
    case Kind::kMeets:
      processes_.at(move.who).stage = Stage::kTraining;
      epochs_[static_cast<size_t>(processes_.at(move.who).epoch)].has_met = true;
      return Say(move.who, EpochMet{.epoch = processes_.at(move.who).epoch});
    case Kind::kFinishes:
      has_finished_ = true;
      return Exit(move.who, 0);
    case Kind::kSaysThatItLeaves:
      return AskToLeave(move.who);
    case Kind::kDiesAsAsked:
      return Exit(move.who, 143);
    default:
      return PassTime();
  }
}

void MembershipWorld::DoEvent(const Move& move) {
  switch (move.kind) {
    case Kind::kIsKilled:
      return Exit(move.who, 137);
    case Kind::kSpeaksNonsense:
      processes_.at(move.who).has_misbehaved = true;
      return Apply(membership_.OnMisbehaviour(move.who, "spoke nonsense", now_));
    case Kind::kIsStopped:
      processes_.at(move.who).is_stopped = true;
      return Apply(membership_.OnStop(move.who, now_));
    case Kind::kAsksToLeave:
      has_anyone_left_ = has_anyone_left_ || !processes_.at(move.who).is_asked;
      return AskToLeave(move.who);
    case Kind::kHostIsLost:
      return LoseHost(static_cast<size_t>(move.who));
    case Kind::kHostIsListedOrNot:
      return ListOrNot(static_cast<size_t>(move.who));
    default:
      return PassTime();
  }
}

void MembershipWorld::PassTime() {
  Check(membership_.deadline() > now_, "the deadline stays in the past");
  now_ = std::max(now_, membership_.deadline());
  is_time_passing_ = true;
  Apply(membership_.OnTime(now_));
  is_time_passing_ = false;
}

void MembershipWorld::Join(int id, const char* reason) {
  ModelProcess& process = processes_.at(id);
  // If a member joins again after it has asked to leave, the launcher tells the member to end.
  process.stage = Stage::kWaiting;
  process.has_joined = true;
  Say(id, JoinRequest{.last_epoch = process.epoch, .step = process.epoch, .reason = reason});
}

void MembershipWorld::AskToLeave(int id) {
  processes_.at(id).is_leaving = true;
  Say(id, LeaveRequest{});
}

void MembershipWorld::Exit(int id, int exit_code) {
  const ModelProcess process = processes_.at(id);
  if (process.epoch >= 0) {
    Epoch& epoch = epochs_[static_cast<size_t>(process.epoch)];
    ++(exit_code == 0 ? epoch.good_exits : epoch.bad_exits);
  }
  if (!process.has_joined) ++start_troubles_;
  processes_.erase(id);
  using Cause = JobMembership::Exit::Cause;
  Apply(membership_.OnExit(id,
                           {.exit_code = exit_code,
                            .describe = "has ended",
                            .cause = process.stage == Stage::kLost ? Cause::kLostHost : Cause::kItself},
                           now_));
}

// Loses a host. Later moves report the ends of its members, in any order.
void MembershipWorld::LoseHost(size_t host) {
  ++start_troubles_;
  hosts_[host].cold = now_ + scope_->options.min_host_cooldown;
  for (auto& [id, process] : processes_) {
    if (process.host == host) process.stage = Stage::kLost;
  }
  Apply(membership_.OnHostLost(scope_->hosts[host].name, now_));
}

void MembershipWorld::ListOrNot(size_t host) {
  hosts_[host] = {.listed = hosts_[host].listed == 0 ? scope_->hosts[host].slots : 0};
  std::vector<JobMembership::Host> listed;
  for (size_t each = 0; each < hosts_.size(); ++each) {
    if (hosts_[each].listed > 0) listed.push_back(scope_->hosts[each]);
  }
  Apply(membership_.OnHosts(listed, now_));
}

// -- The launcher's actions, and checks on them --

void MembershipWorld::Apply(const JobMembership::Actions& actions) {
  is_state_given_away_ = false;
  ApplyPlaces(actions);
  for (const JobMembership::Action& action : actions) {
    Check(!is_over_, "something happens after the end");
    std::visit([this](const auto& what) { Obey(what); }, action);
  }
  Check(membership_.is_over() == is_over_, "the end is told");
  if (is_state_given_away_ && !is_over_ && !has_finished_) {
    Check(std::any_of(processes_.begin(), processes_.end(), [](const auto& one) { return one.second.HasState(); }),
          "the last member that has the state is given away");
  }
}

// Checks that the launcher sends all members their places in an epoch at the same time, and leaves no member out.
void MembershipWorld::ApplyPlaces(const JobMembership::Actions& actions) {
  std::vector<std::pair<int, EpochPlace>> places;
  for (const JobMembership::Action& action : actions) {
    const auto* send = std::get_if<JobMembership::SendMessage>(&action);
    const auto* place = send == nullptr ? nullptr : std::get_if<EpochPlace>(&send->message);
    if (place != nullptr) places.emplace_back(send->member, *place);
    const auto* kill = std::get_if<JobMembership::KillMember>(&action);
    if (kill != nullptr && places.empty()) Obey(*kill);
  }
  if (places.empty()) return;
  for (const auto& [id, process] : processes_) {
    Check(!process.IsIn(newest_epoch_) || process.is_leaving, "a member is still in the epoch before");
  }
  epochs_.push_back({.size = static_cast<int>(places.size())});
  ++newest_epoch_;
  CheckRanks(places);
}

// Ranks are consecutive on each host. The host of the oldest member comes first, and on each host ranks are ordered by
// age.
void MembershipWorld::CheckRanks(const std::vector<std::pair<int, EpochPlace>>& places) {
  const int size = static_cast<int>(places.size());
  Check(size >= scope_->options.min_members, "an epoch is too small");
  std::map<size_t, std::vector<int>> of_host;
  std::vector<size_t> hosts;
  std::set<int> members;
  for (const auto& [id, place] : places) members.insert(id);
  Check(members.size() == places.size(), "a member has two ranks");
  for (const int id : members) {
    const size_t host = processes_.at(id).host;
    if (of_host[host].empty()) hosts.push_back(host);
    of_host[host].push_back(id);
  }
  const JobMembership::MeetingPoint point =
      hosts.size() == 1 ? JobMembership::MeetingPoint() : MeetingPointOf(hosts.front());
  size_t rank = 0;
  for (const size_t host : hosts) {
    int local_rank = 0;
    for (const int id : of_host[host]) {
      const auto& [member, place] = places[rank];
      Check(place.epoch == newest_epoch_, "epochs are not numbered one after the other");
      Check(member == id, "ranks are not by host and age");
      Check(place.topology.rank == static_cast<int>(rank) && place.topology.size == size, "ranks are not compact");
      Check(place.topology.local_rank == local_rank++, "local ranks are not compact");
      Check(place.topology.local_size == static_cast<int>(of_host[host].size()), "a local size is wrong");
      Check(place.master_address == point.address && place.master_port == point.port,
            "an epoch meets elsewhere than at rank 0's host");
      ++rank;
    }
  }
}

void MembershipWorld::Obey(const JobMembership::StartMember& start) {
  Check(start.member == next_member_++, "members are not numbered one after the other");
  Check(!has_finished_, "a member is started though the job is finishing");
  size_t host = 0;
  while (scope_->hosts[host].name != start.host) ++host;
  Check(start.slot < hosts_[host].listed, "a member is started where none is to be");
  Check(start.slots == hosts_[host].listed, "a host has another number of slots");
  Check(now_ >= hosts_[host].cold, "a member is started while its host cools down");
  for (const auto& [id, process] : processes_) {
    Check(process.host != host || process.slot != start.slot, "a slot has two processes");
  }
  processes_[start.member] = {.host = host, .slot = start.slot};
  const auto count = std::count_if(processes_.begin(), processes_.end(),
                                   [this](const auto& one) { return IsUseful(one.second) && IsListed(one.second); });
  Check(count <= scope_->options.max_members, "there are too many members");
  membership_.SetMeetingPoint(start.host, MeetingPointOf(host));
}

void MembershipWorld::Obey(const JobMembership::SendMessage& send) {
  if (!processes_.contains(send.member)) return Check(false, "a member that has ended is spoken to");
  ModelProcess& process = processes_.at(send.member);
  Check(process.stage != Stage::kKilled, "a member that is killed is spoken to");
  if (std::holds_alternative<EndNotice>(send.message)) {
    is_state_given_away_ = is_state_given_away_ || process.HasState();
    if (process.stage != Stage::kLost) process.stage = Stage::kToldToEnd;
  }
  if (std::holds_alternative<ChangeNotice>(send.message)) process.is_told_of_change = true;
  const auto* place = std::get_if<EpochPlace>(&send.message);
  if (place == nullptr) return;
  Check(process.stage == Stage::kWaiting, "a member gets a place that does not wait for one");
  process.stage = Stage::kMeeting;
  process.epoch = place->epoch;
  process.is_told_of_change = false;
}

void MembershipWorld::Obey(const JobMembership::KillMember& kill) {
  if (!processes_.contains(kill.member)) return Check(false, "a member that has ended is killed");
  ModelProcess& process = processes_.at(kill.member);
  Check(!absl::StrContains(kill.why, "as it was asked to") || !IsListed(process),
        "a member is killed because it does not leave, though it need not");
  const bool is_to_blame = process.has_misbehaved || process.is_stopped || process.stage == Stage::kMeeting;
  if (process.HasState() && !is_to_blame) is_state_given_away_ = true;
  if (process.stage != Stage::kLost) process.stage = Stage::kKilled;
}

void MembershipWorld::Obey(const JobMembership::AskToLeave& ask) {
  if (!processes_.contains(ask.member)) return Check(false, "a member that has ended is asked to leave");
  ModelProcess& process = processes_.at(ask.member);
  Check(!IsListed(process), "a member is asked to leave a host that is listed");
  Check(!has_finished_, "a member is asked to leave a job that is at its end");
  Check(CountThoseThatStay() >= scope_->options.min_members, "a member is asked to leave before enough others run");
  process.is_asked = true;
}

void MembershipWorld::Obey(const JobMembership::EndJob& end) {
  is_over_ = true;
  exit_code_ = end.exit_code;
  Check((end.exit_code == 0) == end.why.empty(), "a failure needs a sentence");
  if (end.exit_code != 0) {
    // After all members have died, the job's progress is unknown. Three such epochs in a row count as three failures at
    // the same step.
    const bool has_no_state =
        std::none_of(processes_.begin(), processes_.end(), [](const auto& one) { return one.second.HasState(); });
    const bool has_failed_thrice =
        newest_epoch_ >= 2 && has_no_state && absl::StrContains(end.why, "3 epochs in a row");
    Check(has_finished_ || has_anyone_left_ || is_time_passing_ || start_troubles_ >= 3 || has_failed_thrice,
          "a job is given up too early");
    return;
  }
  Check(processes_.empty(), "a job ends well while processes run");
  Check(has_finished_ || has_anyone_left_, "a job ends well though it has not come to its end");
  if (newest_epoch_ < 0) return Check(false, "a job ends well that has not begun");
  const Epoch& last = epochs_.back();
  Check(last.good_exits == last.size, "a job ends well without a member of its last epoch");
}

// -- Equal worlds --

uint64_t MembershipWorld::Fingerprint() const {
  const auto of_process = [this](int id) -> uint64_t {
    const ModelProcess& process = processes_.at(id);
    const bool is_in_older = process.epoch < newest_epoch_ && process.IsIn(process.epoch);
    uint64_t bits = static_cast<uint64_t>(process.stage);
    for (const bool bit :
         {process.is_told_of_change, process.is_asked, process.is_leaving, process.is_stopped, process.has_misbehaved,
          process.has_joined, is_in_older && IsBroken(process.epoch), is_in_older && IsComplete(process.epoch)}) {
      bits = bits << 1 | static_cast<uint64_t>(bit);
    }
    return bits;
  };
  int64_t cold = 0;
  for (const Host& host : hosts_) cold += MillisecondsUntil(host.cold, now_);
  const Epoch newest = newest_epoch_ < 0 ? Epoch() : epochs_.back();
  return absl::HashOf(membership_.Fingerprint(now_, of_process), events_, has_finished_, has_anyone_left_, cold,
                      std::min(start_troubles_, 3), newest.size, newest.good_exits, newest.bad_exits, newest.has_met);
}

std::string MembershipWorld::Describe() const {
  std::string text = absl::StrCat(membership_.Describe(now_), "|", events_, has_finished_ ? " finished" : "");
  for (const auto& [id, process] : processes_) {
    absl::StrAppend(&text, "|", id, " on ", process.host, " stage ", static_cast<int>(process.stage), " epoch ",
                    process.epoch, process.is_told_of_change ? " told" : "", process.is_asked ? " asked" : "",
                    process.is_leaving ? " leaving" : "", process.is_stopped ? " stopped" : "");
  }
  return text;
}

std::string MembershipWorld::Describe(const Move& move) {
  static constexpr const char* kNames[] = {
      "dies",
      "is told to have ended with its host",
      "obeys",
      "joins",
      "fails",
      "leaves",
      "changes",
      "meets",
      "finishes",
      "says that it leaves",
      "dies as it is asked to leave",
      "time passes",
      "is killed",
      "speaks nonsense",
      "is stopped",
      "asks to leave",
      "all are slow",
      "host is lost",
      "host is listed or not",
  };
  return absl::StrCat(kNames[static_cast<size_t>(move.kind)], " ", move.who);
}

}  // namespace ronda
