// Who is a member of an elastic job, as its launcher decides it.
//
// A member is a process. It is known by its number for life, counted from 0 in the order of the starts. Some of the
// members are in the running epoch, where each of them has a rank; others are starting, or have joined and wait for the
// next epoch. An epoch ends for a member when it joins again; the next one begins with all members that wait, as soon
// as nobody is left in the one before: who has not joined 5 s after the first has is killed.
//
// A member has a slot, which is a place on a host for a process. A member that dies is replaced, in a slot that has
// cooled down; one that has asked to leave is not, unless the job is too small without it. Once a member has ended well
// the job is finishing: nobody is started or let in any more.
//
// Hosts may come and go. A host that is lost, or where three members in a row have ended before they joined, cools down
// itself. Members on a host that is not listed any more are asked to leave as soon as enough others have the state.
#ifndef RONDA_RUNTIME_ELASTIC_MEMBERSHIP_H_
#define RONDA_RUNTIME_ELASTIC_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/elastic/membership_message.h"
#include "runtime/elastic/slot_table.h"

namespace ronda {

// A pure state machine: it starts and kills nobody, and reads no clock. Its owner tells it what happens, and carries
// out the actions that it asks for, in their order.
//
// Thread-compatible, and copyable.
class JobMembership {
 public:
  using Host = SlotTable::Host;
  using MeetingPoint = SlotTable::MeetingPoint;

  struct Options {
    std::vector<Host> hosts;  // at the beginning; each once
    int initial_members = 1;  // that the job begins with
    int min_members = 1;      // an epoch has no fewer
    int max_members = 1;      // on the hosts that are listed there are no more

    absl::Duration start_timeout = absl::Seconds(30);  // from the first join of all, for the others to join
    absl::Duration join_timeout = absl::Seconds(5);    // from the first join after an epoch, for its other members
    absl::Duration meeting_timeout =
        absl::Seconds(10);                            // that members wait by themselves for those that they are to meet
    absl::Duration stop_timeout = absl::Seconds(10);  // that a member may be stopped (SIGSTOP)
    absl::Duration elastic_timeout =
        absl::Seconds(600);          // for a member to start, for members to meet, for enough of them
    std::optional<int> reset_limit;  // of epochs after the first
    absl::Duration min_cooldown = absl::Milliseconds(100);  // of a slot whose member has died; doubles with each death
    absl::Duration max_cooldown = absl::Seconds(1);
    absl::Duration min_host_cooldown = absl::Seconds(1);  // likewise of a host
    absl::Duration max_host_cooldown = absl::Seconds(60);
  };

  // Actions.

  // A process is to be started as this member, which gets the slot of this host.
  struct StartMember {
    int member = 0;
    std::string host;
    int slot = 0;   // from 0
    int slots = 0;  // that the host has
  };
  struct SendMessage {
    int member = 0;
    LauncherMessage message;
  };
  // By SIGKILL; its exit is to be told as any other.
  struct KillMember {
    int member = 0;
    std::string why;  // continues "member 3 "
  };
  // The member is to ask to leave: by SIGTERM.
  struct AskToLeave {
    int member = 0;
    std::string why;  // continues "member 3 "
  };
  // The job is over, well or not; processes that are left are to be ended. It is the last action of all.
  struct EndJob {
    int exit_code = 0;
    std::string why;  // a sentence; empty if all is well
  };
  using Action = std::variant<StartMember, SendMessage, KillMember, AskToLeave, EndJob>;
  using Actions = std::vector<Action>;

  // How a process has ended.
  struct Exit {
    enum class Cause { kItself, kLostHost };  // kLostHost: the process is not to blame, and may even live

    int exit_code = 0;     // 128 + signal for those that a signal has ended
    std::string describe;  // "was killed by signal 9 (SIGKILL)"
    Cause cause = Cause::kItself;
  };

  // REQUIRES: 1 <= min_members <= initial_members <= max_members.
  explicit JobMembership(const Options& options);

  // Events. Those of members that have ended, and all after EndJob, are ignored.

  // To be called once, before all others.
  Actions Begin(absl::Time now);
  Actions OnMessage(int member, const MemberMessage& message, absl::Time now);
  // The member has said what no member says, or its socket is broken while it lives; `why` continues "member 3 ".
  Actions OnMisbehaviour(int member, absl::string_view why, absl::Time now);
  Actions OnExit(int member, const Exit& exit, absl::Time now);
  Actions OnStop(int member, absl::Time now);
  Actions OnContinue(int member, absl::Time now);
  // The hosts of the job have changed: these are all, each once. Those that were known keep their slots' histories.
  Actions OnHosts(const std::vector<Host>& hosts, absl::Time now);
  // A host cannot be reached any more, or could not be reached. The exits of its members are told behind it.
  Actions OnHostLost(absl::string_view host, absl::Time now);
  Actions OnTime(absl::Time now);

  // Where a member on that host can be met from now on, should it become rank 0. Needed before a member joins on a
  // host that is not the only one.
  void SetMeetingPoint(absl::string_view host, MeetingPoint point);

  // When OnTime is to be called; the infinite future if time changes nothing.
  absl::Time deadline() const;

  // The newest epoch; -1 before the first.
  int64_t epoch() const { return epoch_; }
  bool is_over() const { return is_over_; }

  // All that decides what it does from now on, with times relative to `now`, for messages of tests.
  std::string Describe(absl::Time now) const;
  // A hash of the same. It is equal for jobs that differ only in which slot of a host, which host, and which number a
  // member has. `of_process` adds what else is known of a member.
  uint64_t Fingerprint(absl::Time now, absl::FunctionRef<uint64_t(int member)> of_process) const;

 private:
  enum class State {
    kStarting,   // has not joined yet
    kWaiting,    // has joined, and waits for an epoch
    kMeeting,    // has a place in the running epoch
    kRunning,    // and has met the others there
    kLeaving,    // has asked to leave: it may still be in its epoch, and will end
    kDismissed,  // has been told to end
    kKilled,     // and its exit is awaited
    kLost,       // with its host, and its exit is awaited
  };

  struct Member {
    SlotTable::SlotId slot;
    State state = State::kStarting;
    int64_t epoch = -1;  // that it was placed in last
    int64_t step = -1;   // as it said when it joined
    std::string reason;  // likewise
    std::string killed_because;
    bool has_joined = false;  // ever
    bool is_dismissed = false;
    bool has_left = false;                                          // has asked to leave, and is not to be replaced
    int64_t asked_in = -1;                                          // the epoch in which it was asked to leave last
    enum class Change { kUntold, kTold } change = Change::kUntold;  // of the members, in this epoch
    absl::Time deadline = absl::InfiniteFuture();                   // of its state
    absl::Time stop_deadline = absl::InfiniteFuture();              // of a stopped one
  };

  // A death, as the end of the job tells of it.
  struct Failure {
    int exit_code = 0;
    std::string what;
  };

  void OnJoin(int id, Member* member, const JoinRequest& join, absl::Time now);
  void OnMet(int id, Member* member, const EpochMet& met);
  void OnLeave(int id, Member* member, absl::Time now);
  void OnDeath(int id, const Member& member, const Exit& exit, absl::Time now);
  void OnGoodEnd(const Member& member, absl::Time now);

  // Draws the consequences of the last event, and returns the actions.
  Actions Advance(absl::Time now);
  void CallOffJoining();
  void KillOverdue(absl::Time now);
  void LetNewcomersIn();
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
  int CountUseful() const;  // members that are, or may come to be, in an epoch
  int CountListed() const;  // those of them on slots that are listed
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
  bool is_start_over_ = false;  // the first epoch waits no longer for members that start
  int start_failures_ = 0;      // ends of members before they joined, since one has joined

  absl::Duration join_patience_;                          // of join_deadline_, after an epoch
  absl::Time join_deadline_ = absl::InfiniteFuture();     // set while members join after an epoch, or for the first one
  absl::Time elastic_deadline_ = absl::InfiniteFuture();  // set while nobody is in an epoch
  std::optional<Failure> failure_;                        // the last of a member of the running epoch
  std::optional<Failure> start_failure_;                  // the last before a member has joined
  std::optional<int64_t> failed_step_;                    // the newest complete step when the last epoch failed
  int failures_at_step_ = 0;
  int unmet_ = 0;             // members of the newest epoch that have not said that they have met
  int failures_to_meet_ = 0;  // epochs in a row
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ELASTIC_MEMBERSHIP_H_
