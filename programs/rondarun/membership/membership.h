// SPDX-License-Identifier: Apache-2.0

// Decides which processes are the members of an elastic job. JobMembership is a state machine that the launcher owns.
//
// A member is a process with a number that never changes. Members are numbered from 0, in the order in which they
// start. Each member of the running epoch has a rank in that epoch. Other members are starting, or have joined and are
// waiting for the next epoch. An epoch ends for a member when the member joins again. The next epoch begins, with all
// waiting members, as soon as no member is left in the previous epoch. Once the first member of an epoch has joined
// again, the launcher kills every other member of that epoch that does not join within 5 s.
//
// A member has a slot: room for one process on a host. If a member dies, the job starts another member in a slot whose
// cooldown is over. A member that asked to leave is replaced only if the job would be too small without it. Once a
// member has ended with exit code 0, the job is finishing. A finishing job starts no members, and admits no new ones to
// an epoch.
//
// Hosts may join and leave the job. A host cools down if it is lost, or if three members in a row have ended on it
// before they joined. The members on a host that is no longer listed are asked to leave once enough members on other
// hosts have the job's state.
#ifndef RONDA_PROGRAMS_RONDARUN_MEMBERSHIP_MEMBERSHIP_H_
#define RONDA_PROGRAMS_RONDARUN_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/membership/slot_table.h"
#include "runtime/elastic/membership_message.h"

namespace ronda {

// JobMembership is a pure state machine: it neither starts nor kills processes, and reads no clock. The owner reports
// events to it, and executes the returned actions in order.
//
// Thread-compatible, and copyable.
class JobMembership {
 public:
  using Host = SlotTable::Host;
  using MeetingPoint = SlotTable::MeetingPoint;

  struct Options {
    std::vector<Host> hosts;  // at the beginning; each once
    int initial_members = 1;  // members at the beginning
    int min_members = 1;      // the fewest members of an epoch
    int max_members = 1;      // the most members on listed hosts

    absl::Duration start_timeout = absl::Seconds(30);  // for the other members, after the very first join
    absl::Duration join_timeout = absl::Seconds(5);    // from the first join after an epoch, for its other members
    absl::Duration meeting_timeout =
        absl::Seconds(10);  // that members by themselves wait for the others of a new epoch to come
    absl::Duration stop_timeout = absl::Seconds(10);  // for a stopped member (SIGSTOP) to go on
    absl::Duration elastic_timeout =
        absl::Seconds(600);          // for a member to start, for members to meet, for enough of them to come
    std::optional<int> reset_limit;  // the most epochs after the first
    absl::Duration min_cooldown = absl::Milliseconds(100);  // of a slot whose member has died; doubles with each death
    absl::Duration max_cooldown = absl::Seconds(1);
    absl::Duration min_host_cooldown = absl::Seconds(1);  // of a host; doubles too
    absl::Duration max_host_cooldown = absl::Seconds(60);
  };

  // The actions that JobMembership returns to its owner.

  // Start a process as the member `member`, in this slot of this host.
  struct StartMember {
    int member = 0;
    std::string host;
    int slot = 0;   // from 0
    int slots = 0;  // the slots of the host
  };
  struct SendMessage {
    int member = 0;
    LauncherMessage message;
  };
  // Kill the member with SIGKILL. The owner reports the member's exit to OnExit, like any other exit.
  struct KillMember {
    int member = 0;
    std::string why;  // continues "member 3 "
  };
  // Ask the member to leave, by sending SIGTERM.
  struct AskToLeave {
    int member = 0;
    std::string why;  // continues "member 3 "
  };
  // The job is over, successfully or not. The owner ends all remaining processes. No action follows EndJob.
  struct EndJob {
    int exit_code = 0;
    std::string why;  // a sentence; empty if all is well
  };
  using Action = std::variant<StartMember, SendMessage, KillMember, AskToLeave, EndJob>;
  using Actions = std::vector<Action>;

  // How a process ended.
  struct Exit {
    enum class Cause { kItself, kLostHost };  // kLostHost: the process is not to blame, and may even live

    int exit_code = 0;     // 128 + signal if a signal has ended the process
    std::string describe;  // "was killed by signal 9 (SIGKILL)"
    Cause cause = Cause::kItself;
  };

  // REQUIRES: 1 <= min_members <= initial_members <= max_members.
  explicit JobMembership(const Options& options);

  // These functions report events. Events of members that have ended are ignored, and so are all events after EndJob.

  // Must be called once, before any event is reported.
  Actions Begin(absl::Time now);
  Actions OnMessage(int member, const MemberMessage& message, absl::Time now);
  // The member has sent an invalid message, or its socket is broken although the process is alive. `why` completes a
  // sentence that starts with "member 3 ".
  Actions OnMisbehaviour(int member, absl::string_view why, absl::Time now);
  Actions OnExit(int member, const Exit& exit, absl::Time now);
  Actions OnStop(int member, absl::Time now);
  Actions OnContinue(int member, absl::Time now);
  // The hosts of the job have changed. `hosts` lists each host of the job once. A host that was listed before keeps the
  // history of its slots.
  Actions OnHosts(const std::vector<Host>& hosts, absl::Time now);
  // A host has been lost, or cannot be reached at all. The exits of the host's members are reported after this call.
  Actions OnHostLost(absl::string_view host, absl::Time now);
  Actions OnTime(absl::Time now);

  // Sets where other members connect to a member on this host if that member becomes rank 0. If the job has several
  // hosts, must be called before a member on this host joins.
  void SetMeetingPoint(absl::string_view host, MeetingPoint point);

  // Returns when the owner must call OnTime, or the infinite future if nothing depends on time.
  absl::Time deadline() const;

  // Returns the number of the newest epoch, or -1 before the first epoch.
  int64_t epoch() const { return epoch_; }
  bool is_over() const { return is_over_; }

  // Describes all state on which future actions depend. Times in the text are relative to `now`. Tests print this text.
  std::string Describe(absl::Time now) const;
  // Returns a hash of the whole state. States that differ only in the numbers of their members, slots and hosts have
  // the same hash. `of_process` returns a hash of whatever else is known about a member.
  uint64_t Fingerprint(absl::Time now, absl::FunctionRef<uint64_t(int member)> of_process) const;

 private:
  enum class State {
    kStarting,   // has not joined yet
    kWaiting,    // has joined, and waits for an epoch
    kMeeting,    // has a place in the running epoch
    kRunning,    // has met the other members of that epoch
    kLeaving,    // has asked to leave: it may still be in its epoch, and will end
    kDismissed,  // was notified to end
    kKilled,     // the launcher waits for its exit
    kLost,       // was lost with its host; the launcher waits for its exit
  };

  struct Member {
    SlotTable::SlotId slot;
    State state = State::kStarting;
    int64_t epoch = -1;  // the last epoch in which it had a place
    int64_t step = -1;   // from its last join
    std::string reason;  // from its last join
    std::string killed_because;
    bool has_joined = false;  // ever
    bool is_dismissed = false;
    bool has_left = false;                                          // has asked to leave, and is not to be replaced
    int64_t asked_in = -1;                                          // the epoch in which it was asked to leave last
    enum class Change { kUntold, kTold } change = Change::kUntold;  // of the members, in this epoch
    absl::Time deadline = absl::InfiniteFuture();                   // of its state
    absl::Time stop_deadline = absl::InfiniteFuture();              // while it is stopped
  };

  // The death of a member, for the message with which the job ends.
  struct Failure {
    int exit_code = 0;
    std::string what;
  };

  void OnJoin(int id, Member* member, const JoinRequest& join, absl::Time now);
  void OnMet(int id, Member* member, const EpochMet& met);
  void OnLeave(int id, Member* member, absl::Time now);
  void OnDeath(int id, const Member& member, const Exit& exit, absl::Time now);
  void OnGoodEnd(const Member& member, absl::Time now);

  // Makes all state transitions that the last event causes, and returns the actions.
  Actions Advance(absl::Time now);
  void CallOffJoining();
  void KillOverdue(absl::Time now);
  void AdmitJoiningMembers();
  void EmptyUnlistedHosts(absl::Time now);
  bool DoEnoughStay() const;
  void AskToLeaveItsHost(int id, Member* member, absl::string_view why, absl::Time now);
  void Meet(absl::Time now);
  void CountFailure(const std::vector<int>& waiting);
  void CountFailureToMeet(absl::string_view reason);
  void Place(const std::vector<int>& waiting, absl::Time now);
  std::vector<EpochPlace> PlacesOf(const std::vector<int>& members) const;
  void StartMembers(absl::Time now);
  void EndIfHopeless(absl::Time now);
  void BeginToFinish(absl::Time now);

  void Kill(int id, Member* member, absl::string_view why);
  void Dismiss(int id, Member* member, absl::string_view why, absl::Time now);
  void Send(int id, LauncherMessage message) { actions_.push_back(SendMessage{id, std::move(message)}); }
  void End(int exit_code, std::string why);

  static bool IsInEpoch(const Member& member) {
    return member.state == State::kMeeting || member.state == State::kRunning;
  }
  static bool IsExitAwaited(const Member& member) {
    return member.state == State::kKilled || member.state == State::kLost;
  }
  bool IsAnyIn(State state) const;
  bool IsEpochOccupied() const { return IsAnyIn(State::kMeeting) || IsAnyIn(State::kRunning); }
  std::vector<int> WaitingMembers() const;
  int CountUseful() const;  // members that are in an epoch, or may get into one
  int CountListed() const;  // useful members on listed slots
  std::vector<int> InOrderOfHosts(const std::vector<int>& members) const;
  bool IsListed(const Member& member) const { return slots_.IsListed(member.slot); }
  static bool IsUseful(const Member& member) {
    return member.state == State::kStarting || member.state == State::kWaiting || IsInEpoch(member);
  }
  SlotTable::Choice ChoiceOfSlots() const;
  bool MayStart() const;

  const Options options_;
  std::map<int, Member> members_;  // that have not ended
  SlotTable slots_;
  int next_member_ = 0;
  int64_t epoch_ = -1;
  Actions actions_;
  bool is_over_ = false;
  bool is_finishing_ = false;
  bool is_start_over_ = false;  // the first epoch no longer waits for members that start
  int start_failures_ = 0;      // members that ended before they joined, since the last join

  absl::Duration join_timeout_;                           // the length of join_deadline_ after an epoch
  absl::Time join_deadline_ = absl::InfiniteFuture();     // set while members join after an epoch, or for the first one
  absl::Time elastic_deadline_ = absl::InfiniteFuture();  // set while no member is in an epoch
  std::optional<Failure> failure_;                        // the last failure of a member of the running epoch
  std::optional<Failure> start_failure_;                  // the last failure before a member had joined
  std::optional<int64_t> failed_step_;                    // the newest complete step when the last epoch failed
  int failures_at_step_ = 0;
  int unmet_ = 0;             // members of the newest epoch that have not reported that they have met
  int failures_to_meet_ = 0;  // epochs in a row
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_MEMBERSHIP_MEMBERSHIP_H_
