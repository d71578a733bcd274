// SPDX-License-Identifier: Apache-2.0

// A model of a job's members and hosts, which drives the real JobMembership. The model lists the possible next moves,
// and checks the conditions that must hold.
#ifndef RONDA_TESTS_TESTING_MEMBERSHIP_MODEL_MEMBERSHIP_WORLD_H_
#define RONDA_TESTS_TESTING_MEMBERSHIP_MODEL_MEMBERSHIP_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "programs/rondarun/membership/membership.h"

namespace ronda {

// A member's process.
struct ModelProcess {
  enum class Stage { kStarting, kWaiting, kMeeting, kTraining, kToldToEnd, kKilled, kLost } stage = Stage::kStarting;
  size_t host = 0;
  int slot = 0;
  int64_t epoch = -1;  // the newest epoch that it was in; -1: none
  bool is_told_of_change = false;
  bool is_asked = false;    // the launcher has asked it to leave
  bool is_leaving = false;  // it has told the launcher that it leaves
  bool is_stopped = false;
  bool has_misbehaved = false;
  bool has_joined = false;

  bool IsIn(int64_t other) const { return epoch == other && (stage == Stage::kMeeting || stage == Stage::kTraining); }
  bool IsDoomed() const { return stage == Stage::kToldToEnd || stage == Stage::kKilled || stage == Stage::kLost; }
  // Returns whether the process has been in an epoch, and can send its state to other members.
  bool HasState() const { return epoch >= 0 && !is_leaving && !IsDoomed(); }
};

// Thread-compatible. Copies are independent of each other.
class MembershipWorld {
 public:
  struct Scope {
    JobMembership::Options options;
    std::vector<JobMembership::Host> hosts;  // all hosts that may be listed, including those in the options
    enum class Hosts { kStay, kChange } host_changes = Hosts::kStay;
    int events = 0;  // the number of faults and changes that may happen
  };

  enum class Kind {
    // Moves of members.
    kDies,
    kEndIsTold,
    kObeys,
    kJoins,
    kFails,
    kLeaves,
    kChanges,
    kMeets,
    kFinishes,
    kSaysThatItLeaves,
    kDiesAsAsked,
    kTimePasses,
    // Events.
    kIsKilled,
    kSpeaksNonsense,
    kIsStopped,
    kAsksToLeave,
    kAllAreSlow,
    kHostIsLost,
    kHostIsListedOrNot,
  };
  struct Move {
    Kind kind;
    int who = -1;  // a member, or a host
  };

  // `scope` must outlive this object and its copies.
  explicit MembershipWorld(const Scope* scope);

  // Returns the possible moves. If the result is empty although the job is not over, and no events are left, every
  // member waits for ever.
  std::vector<Move> Moves() const;
  void Do(const Move& move);

  bool is_over() const { return is_over_; }
  bool has_succeeded() const { return is_over_ && exit_code_ == 0; }
  int64_t newest_epoch() const { return newest_epoch_; }
  const char* problem() const { return problem_; }  // nullptr: none

  // Returns a hash that is the same for worlds whose futures differ only in names.
  uint64_t Fingerprint() const;
  std::string Describe() const;
  static std::string Describe(const Move& move);

 private:
  using Stage = ModelProcess::Stage;

  struct Epoch {
    int size = 0;
    int good_exits = 0;
    int bad_exits = 0;
    bool has_met = false;  // one of its members has met all others
  };

  struct Host {
    int listed = 0;
    absl::Time cold = absl::InfinitePast();  // no member is started on the host before this time
  };

  void AddStepsOf(int id, const ModelProcess& process, std::vector<Move>* moves) const;
  void AddEpochStepsOf(int id, const ModelProcess& process, std::vector<Move>* moves) const;
  void AddEvents(bool is_quiet, std::vector<Move>* moves) const;
  void DoStep(const Move& move);
  void DoEvent(const Move& move);

  void Apply(const JobMembership::Actions& actions);
  void ApplyPlaces(const JobMembership::Actions& actions);
  void CheckRanks(const std::vector<std::pair<int, EpochPlace>>& places);
  void Obey(const JobMembership::StartMember& start);
  void Obey(const JobMembership::SendMessage& send);
  void Obey(const JobMembership::KillMember& kill);
  void Obey(const JobMembership::AskToLeave& ask);
  void Obey(const JobMembership::EndJob& end);
  void CheckGivenAway();

  int CountIn(int64_t epoch) const;
  bool IsBroken(int64_t epoch) const;
  bool IsComplete(int64_t epoch) const;
  bool HaveAllMet(int64_t epoch) const;
  bool HasFinished(int64_t epoch) const { return has_finished_ && epoch == newest_epoch_; }
  bool IsAnybodyToldOf(int64_t epoch) const;
  bool IsListed(const ModelProcess& process) const { return process.slot < hosts_[process.host].listed; }
  int CountThoseThatStay() const;
  bool IsUseful(const ModelProcess& process) const { return !process.is_leaving && !process.IsDoomed(); }

  void Say(int id, const MemberMessage& message) { Apply(membership_.OnMessage(id, message, now_)); }
  void Join(int id, const char* reason);
  void AskToLeave(int id);
  void Exit(int id, int exit_code);
  void PassTime();
  void LoseHost(size_t host);
  void ListOrNot(size_t host);
  void Check(bool is_right, const char* what) {
    if (!is_right && problem_ == nullptr) problem_ = what;
  }

  const Scope* scope_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  JobMembership membership_;
  std::map<int, ModelProcess> processes_;
  std::vector<Epoch> epochs_;
  std::vector<Host> hosts_;
  int64_t newest_epoch_ = -1;
  int next_member_ = 0;
  int start_troubles_ = 0;        // deaths of members that have never joined, and lost hosts
  bool has_finished_ = false;     // a member of the newest epoch has finished its program
  bool has_anyone_left_ = false;  // a member has left at its own request
  bool is_time_passing_ = false;
  bool is_state_given_away_ = false;  // the last event's actions have given up a state
  bool is_over_ = false;
  int exit_code_ = -1;
  int events_ = 0;
  const char* problem_ = nullptr;
};

}  // namespace ronda

#endif  // RONDA_TESTS_TESTING_MEMBERSHIP_MODEL_MEMBERSHIP_WORLD_H_
