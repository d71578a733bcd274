// SPDX-License-Identifier: Apache-2.0

// An elastic job in a virtual world: the launcher, its members, the faults, and the promises that must hold.
#ifndef RONDA_TESTS_SIMULATION_JOB_H_
#define RONDA_TESTS_SIMULATION_JOB_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "programs/rondarun/membership/membership.h"
#include "runtime/base/unique_fd.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_network.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// How often each thing has happened. A simulation in which nothing happens would prove nothing.
struct Counts {
  uint64_t scenarios = 0;
  uint64_t epochs = 0;
  uint64_t failed_epochs = 0;  // as members see them
  uint64_t steps = 0;
  uint64_t operations = 0;
  uint64_t refused = 0;  // operations on which the ranks disagreed
  uint64_t late = 0;     // operations that a rank has left out
  uint64_t callbacks = 0;
  uint64_t states_moved = 0;
  uint64_t restarts = 0;  // from the first step, because no member with a state was left
  uint64_t given_up = 0;  // jobs that their launcher has ended, with the reason
  uint64_t messages = 0;
  uint64_t halves = 0;
  uint64_t descriptors_failed = 0;
  std::array<uint64_t, Fault::kKinds> faults = {};  // that hit a member
};

// All counts except those of faults, in the order in which they are printed.
struct CountName {
  uint64_t Counts::*count;
  const char* name;
};
inline constexpr CountName kCountNames[] = {
    {&Counts::scenarios, "scenarios"},
    {&Counts::epochs, "epochs"},
    {&Counts::failed_epochs, "epochs that failed for a member"},
    {&Counts::steps, "steps of members"},
    {&Counts::operations, "operations that ended well"},
    {&Counts::refused, "operations refused"},
    {&Counts::late, "operations left out"},
    {&Counts::callbacks, "callbacks"},
    {&Counts::states_moved, "states moved to a member"},
    {&Counts::restarts, "new beginnings"},
    {&Counts::given_up, "jobs given up"},
    {&Counts::messages, "messages"},
    {&Counts::halves, "messages of which a half arrived"},
    {&Counts::descriptors_failed, "descriptors that could not be made"},
};

// Decides which processes are members as rondarun does, by the production class, and starts members as processes of the
// world.
//
// Checks the promises of the whole job: no two epochs live at once; a member's state is that of its step; no state is
// lost while a member that has it lives; the job ends in time. At the first violation, `violate` ends the operating
// system's process.
//
// Only virtual threads use it.
class Job {
 public:
  Job(const Scenario& scenario, Counts* counts, std::function<void(const std::string& what)> violate);

  // Runs the job to its end.
  void Run();

  const Scenario& scenario() const { return scenario_; }
  VirtualNetwork& network() { return network_; }
  Counts& counts() { return counts_; }

  // Called by members. Violate does not return.
  [[noreturn]] void Violate(const std::string& what);
  // The members of an epoch, by rank.
  const std::vector<int>& MembersOf(int64_t epoch) const { return epochs_.at(epoch); }
  // Whether the member has been asked to leave.
  bool IsAskedToLeave(int member) const { return members_.at(member).is_asked; }
  // The member is in this epoch from now on; -1: in none any more.
  void RecordEpoch(int member, int64_t epoch);
  // An operation of the epoch has succeeded on the member.
  void RecordOperation(int member, int64_t epoch);
  // The member has a state after `steps` steps.
  void RecordState(int member, int64_t steps, uint64_t state);
  // The member leaves the job, as it was asked to.
  void RecordLeft(int member) { members_[member].has_left = true; }
  // The members of an epoch continue with the state of this step.
  void RecordSource(int member, int64_t epoch, int64_t step);

 private:
  struct Member {
    ProcessId process = 0;
    UniqueFd socket;     // the launcher's end
    int64_t epoch = -1;  // that it is in; -1: in none
    int64_t steps = -1;
    // Until this time, the member may be late because of its last fault.
    absl::Duration hurt_until = -absl::InfiniteDuration();
    bool is_asked = false;
    bool has_left = false;
  };
  // An event for the launcher that does not come from its members.
  using News = std::function<JobMembership::Actions(absl::Time now)>;

  absl::Time Now() const { return absl::FromUnixSeconds(1'000'000'000) + VirtualWorld::Get().now(); }
  void Step();
  void ReadFrom(int member);
  void Record(int member, const MemberMessage& message);
  void RecordJoin(int member, const JoinRequest& join);
  void RecordExits();
  void Apply(const JobMembership::Actions& actions);
  void Start(const JobMembership::StartMember& start);
  void Place(int member, const EpochPlace& place);
  void Kill(const JobMembership::KillMember& kill);
  void EndProcess(ProcessId process, VirtualNetwork::End how);
  uint64_t StateAfter(int64_t steps);
  void CheckEnd();
  int RunMember(int member, UniqueFd socket);

  // Faults, made by a thread of the launcher.
  void BringFaults();
  void Bring(const Fault& fault);
  void Hurt(int member, absl::Duration lasts);
  void Stop(int member, absl::Duration lasts);
  void Resize(uint64_t choice);
  std::optional<int> LivingMember(uint64_t choice, int other_than = -1) const;

  const Scenario scenario_;
  Counts& counts_;
  const std::function<void(const std::string& what)> violate_;
  VirtualNetwork network_;
  JobMembership membership_;
  std::map<int, Member> members_;               // all that were ever started
  std::map<int64_t, std::vector<int>> epochs_;  // by rank
  std::vector<uint64_t> states_;                // of the model, by steps; no fault may change them
  int64_t epoch_ = -1;                          // the newest that has been placed
  std::deque<News> news_;
  std::optional<JobMembership::EndJob> end_;
  int64_t completed_ = -1;      // the most steps of a member that has ended without an error
  bool has_last_left_ = false;  // the member that ended last had been asked to leave
  absl::Duration last_fault_;
  absl::Duration hurt_until_ = -absl::InfiniteDuration();  // the latest of all members
  size_t met_ = 0;                                         // members of the newest epoch that have met the others
  absl::Duration first_left_ = absl::InfiniteDuration();   // when the first member left the newest epoch
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_JOB_H_
