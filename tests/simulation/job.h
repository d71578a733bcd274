// SPDX-License-Identifier: Apache-2.0

// Simulates an elastic job in a virtual world: its launcher, members, faults, and the guarantees that must hold.
#ifndef RONDA_TESTS_SIMULATION_JOB_H_
#define RONDA_TESTS_SIMULATION_JOB_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/elastic/elastic_job.h"
#include "programs/rondarun/supervise/job_part.h"
#include "runtime/elastic/membership_message.h"
#include "tests/simulation/hosts.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_network.h"
#include "tests/simulation/virtual_processes.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// Counts of events. A simulation in which nothing happens would prove nothing.
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
  uint64_t restarts = 0;  // starts from the first step again, because no member with a state was left
  uint64_t given_up = 0;  // jobs that their launcher has ended, with the reason
  uint64_t messages = 0;
  uint64_t halves = 0;
  uint64_t parts = 0;   // calls that moved a part of the bytes, over TCP
  uint64_t resets = 0;  // connections reset with bytes under way, over TCP
  uint64_t descriptors_failed = 0;
  uint64_t agents = 0;
  uint64_t lost_hosts = 0;  // as the launcher sees them
  uint64_t broken_connections = 0;
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
    {&Counts::parts, "calls that moved a part of the bytes"},
    {&Counts::resets, "resets that cut the bytes under way"},
    {&Counts::descriptors_failed, "descriptors that could not be made"},
    {&Counts::agents, "agents"},
    {&Counts::lost_hosts, "hosts that the launcher has lost"},
    {&Counts::broken_connections, "connections to agents that broke with half a message"},
};

// Runs a job with the production class ElasticJob, as rondarun does. The job's members and the agents on other hosts
// are simulated processes.
//
// Checks the guarantees of the whole job: At most one epoch is alive at a time. Every member has the right state for
// its step. The state is not lost while a member that has it is alive. If a host does not answer, the launcher gives up
// the whole host. The job and all its processes end in time. At the first violation, `violate` ends the real process.
//
// Only virtual threads may use a Job.
class Job final : private JobListener {
 public:
  Job(const Scenario& scenario, Counts* counts, std::function<void(const std::string& what)> violate);

  // Runs the job to its end.
  void Run();

  const Scenario& scenario() const { return scenario_; }
  VirtualNetwork& network() { return network_; }
  Counts& counts() { return counts_; }

  // Called by members. Violate does not return.
  [[noreturn]] void Violate(const std::string& what);
  // Returns whether the member has been asked to leave.
  bool IsAskedToLeave(int member) const;
  // Records that the member has received its place in an epoch.
  void RecordPlace(int member, const EpochPlace& place);
  void RecordLeftEpoch(int member) { members_[member].epoch = -1; }
  // Records that a member is connected to the other members of the epoch.
  void RecordMet(int64_t epoch);
  // Records that the member has left its epoch, and asks to join the next one. `why` is the failure, if any.
  void RecordJoin(int member, int64_t epoch, const std::string& why);
  // Records that an operation of the epoch has succeeded on the member.
  void RecordOperation(int member, int64_t epoch);
  // Records the member's state after `steps` steps.
  void RecordState(int member, int64_t steps, uint64_t state);
  // Records that the member has left the job because it was asked to.
  void RecordLeft(int member) { members_[member].has_left = true; }
  // Records that the members of an epoch continue from the state after this step.
  void RecordSource(int member, int64_t epoch, int64_t step);

 private:
  struct Member {
    ProcessId process = 0;
    std::string host;
    int slot = 0;
    int socket = -1;     // the connection to its launcher or agent
    int64_t epoch = -1;  // the epoch that it is in; -1: none
    int64_t steps = -1;
    // Until this time, the member may be late because of its last fault.
    absl::Duration hurt_until = -absl::InfiniteDuration();
    bool is_asked = false;  // by a fault
    bool has_left = false;
    // True if the launcher has lost the member's host, or has told the agent to kill the member. The other members then
    // continue without it.
    bool is_given_up = false;
  };

  // The following functions receive the launcher's reports.
  void OnRankStart(RankId, pid_t, const std::string&) override {}
  void OnOutput(RankId, Stream, absl::string_view) override {}
  void OnOutputEnd(RankId, Stream) override {}
  void OnRankEnd(RankEnd end) override;
  void OnHelperLine(absl::string_view helper, absl::string_view line) override;
  void OnJobFailure(absl::string_view what, int exit_code) override;
  size_t Pending(Stream) const override { return 0; }
  void Say(absl::string_view text) override;
  void Explain(absl::string_view) override {}

  ElasticJob::Options OptionsOfJob();
  // Returns a function that creates member processes on the host.
  MemberProcesses::MakeMember MakeMemberOn(const std::string& host);
  AgentHost::Options OptionsOf(const std::string& host);

  // The programs of the processes. Each function returns an exit code.
  int RunProgram(const ChildProcess::Options& options, VirtualProcesses::Descriptors descriptors);
  int RunMember(const std::vector<std::string>& command, UniqueFd socket);
  int RunAgent(const std::string& host, VirtualProcesses::Descriptors descriptors);
  int ListHosts(int output) const;

  void OnProcessEnd(ProcessId process);
  void EndProcess(ProcessId process, VirtualNetwork::End how);
  // Checks that the launcher is allowed to kill the member. `why` is the part of the launcher's text that follows the
  // word "member", for example "3 (pid 7) did not leave epoch 2".
  void CheckKill(int id, absl::string_view why);
  void CheckTime();
  uint64_t StateAfter(int64_t steps);
  void CheckEnd();
  void AwaitProcesses();

  // Causes the faults, in a thread of the launcher.
  void BringFaults();
  void Bring(const Fault& fault);
  void BringToHost(const Fault& fault);
  void Hurt(int member, absl::Duration lasts);
  void Stop(int member, absl::Duration lasts);
  void Resize(const Fault& fault);
  bool IsAlive(const Member& member) const { return VirtualWorld::Get().IsAlive(member.process); }
  std::optional<int> LivingMember(uint64_t choice, int other_than = -1) const;

  const Scenario scenario_;
  Counts& counts_;
  const std::function<void(const std::string& what)> violate_;
  VirtualNetwork network_;
  Hosts hosts_;
  std::map<std::string, int> slots_;            // of the hosts
  std::map<int, Member> members_;               // all that have ever run
  std::set<ProcessId> silenced_;                // processes whose connections stay silent at their end
  std::map<int64_t, std::vector<int>> epochs_;  // members by rank; -1: not placed yet
  std::vector<uint64_t> states_;                // of the model, by steps; no fault may change them
  int64_t epoch_ = -1;                          // the newest in which a member has a place
  struct End {
    int exit_code = 0;
    std::string why;
  };
  End end_;
  bool is_over_ = false;
  int64_t completed_ = -1;                                 // the most steps of a member that has ended without error
  bool has_last_left_ = false;                             // the member that ended last had been asked to leave
  absl::Duration last_fault_;                              // when the last fault ended
  absl::Duration hurt_until_ = -absl::InfiniteDuration();  // the latest of all members
  size_t met_ = 0;                                         // members of the newest epoch that have met the others
  absl::Duration first_left_ = absl::InfiniteDuration();   // when the newest epoch first failed for a member
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_JOB_H_
