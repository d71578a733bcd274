// SPDX-License-Identifier: Apache-2.0

// Simulates the control plane of a job over TCP in a virtual world: its ranks, faults, and the guarantees that must
// hold.
#ifndef RONDA_TESTS_SIMULATION_CONTROL_JOB_H_
#define RONDA_TESTS_SIMULATION_CONTROL_JOB_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/control/messages/poll_limit.h"
#include "runtime/control/tree/control_node.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// A fault of a rank, or of its connection to its parent.
struct ControlFault {
  enum class Kind {
    kReset,       // the connection to the parent is reset
    kKill,        // the rank's process ends, and the system closes its connections
    kLeaveEarly,  // the rank's control plane ends without a departure
    kFail,        // the rank fails the job
  };
  static constexpr int kKinds = 4;

  Kind kind = Kind::kReset;
  absl::Duration at;
  RankId rank = 0;  // not 0 for kReset
};

struct ControlScenario {
  uint64_t seed = 0;
  ControlTree tree;
  int64_t rounds = 1;
  absl::Duration compute;  // longest time between operations
  absl::Duration latency;  // the longest latency of a piece of a message
  absl::Duration tick;     // between two reads of the clock
  absl::Duration delay;    // of the start of rank `late`
  RankId late = 0;
  PollLimit::Cores cores = PollLimit::Cores::kAreShared;
  std::vector<ControlFault> faults;  // in the order of their times
};

// Returns equal scenarios for equal seeds.
ControlScenario MakeControlScenario(uint64_t seed);
std::string Describe(const ControlScenario& scenario);

// Counts of the events in a scenario.
struct ControlCounts {
  uint64_t scenarios = 0;
  uint64_t reports = 0;
  uint64_t broadcasts = 0;
  uint64_t parts = 0;
  uint64_t resets = 0;
  uint64_t departures = 0;
  uint64_t failures = 0;        // of ranks
  uint64_t early_failures = 0;  // before the job had started
  uint64_t cut_off = 0;         // ranks with a failure of their own
  std::array<uint64_t, ControlFault::kKinds> faults = {};
};

struct ControlCountName {
  uint64_t ControlCounts::*count;
  const char* name;
};
inline constexpr ControlCountName kControlCountNames[] = {
    {&ControlCounts::scenarios, "scenarios"},
    {&ControlCounts::reports, "reports"},
    {&ControlCounts::broadcasts, "broadcasts that ranks have got"},
    {&ControlCounts::parts, "calls that moved a part of the bytes"},
    {&ControlCounts::resets, "resets that cut the bytes under way"},
    {&ControlCounts::departures, "departures"},
    {&ControlCounts::failures, "failures of ranks"},
    {&ControlCounts::early_failures, "failures of ranks before the start"},
    {&ControlCounts::cut_off, "ranks cut off from rank 0"},
};
inline constexpr const char* kControlFaultNames[ControlFault::kKinds] = {"reset", "kill", "leave early", "fail"};

// A job whose ranks send reports to rank 0, which answers each round with a broadcast, as in a negotiation. Each rank
// is a process with the production control plane (MessageControlPlane) and TCP messages (TcpMessages), over simulated
// sockets that production code connects (ConnectTcpPartners). The ranks send no heartbeats, so failures that only
// heartbeats reveal go unnoticed.
//
// Checks the guarantees of the control plane: Every message arrives whole, once and in order. Departures in any order
// cause no failure. After a fault, every rank learns of the failure in time, and all ranks that are still connected
// have the same failure. All ranks end. At the first violation, `violate` ends the real process.
//
// Only virtual threads may use a ControlJob.
class ControlJob {
 public:
  ControlJob(const ControlScenario& scenario, ControlCounts* counts,
             std::function<void(const std::string& what)> violate);

  // Runs the job to its end.
  void Run();

  const ControlScenario& scenario() const { return scenario_; }

  // Called by ranks. Violate() does not return.
  [[noreturn]] void Violate(const std::string& what) const;
  ControlCounts& counts() { return counts_; }
  // Returns the fault that the rank must now cause, if any: to leave early, or to fail the job.
  std::optional<ControlFault::Kind> TakeOrder(RankId rank);
  enum class Phase { kStart, kWork };
  void RecordFailure(RankId rank, Phase phase, const absl::Status& failure);
  // Records that the rank has departed. `failure` is the failure that its control plane reports after the departure.
  void RecordDeparture(RankId rank, const absl::Status& failure);

 private:
  struct Rank {
    ProcessId process = 0;
    std::optional<ControlFault::Kind> order;
    bool is_cut = false;         // whether it is cut off from its parent
    bool is_culprit = false;     // whether a fault has hit it
    Phase phase = Phase::kWork;  // the phase in which it failed
    absl::Status failure;
  };

  void Bring(const ControlFault& fault);
  void AwaitEnds();
  void CheckAgreement() const;
  bool IsAlive(const Rank& rank) const;
  bool IsKilled(const Rank& rank) const;

  const ControlScenario scenario_;
  ControlCounts& counts_;
  const std::function<void(const std::string& what)> violate_;
  std::vector<Rank> ranks_;
  absl::Duration last_fault_ = absl::ZeroDuration();
  int faults_ = 0;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_CONTROL_JOB_H_
