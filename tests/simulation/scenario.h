// SPDX-License-Identifier: Apache-2.0

// Generates scenarios from seeds. A scenario is a job, its machine, and its faults.
#ifndef RONDA_TESTS_SIMULATION_SCENARIO_H_
#define RONDA_TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/config.h"
#include "tests/simulation/virtual_network.h"

namespace ronda::simulation {

// A fault, or a change, at some time. `choice` and `choice2` choose among the members that are then alive.
struct Fault {
  enum class Kind {
    kKill,          // SIGKILL: the connections are reset
    kPowerLoss,     // the process is gone, and its connections stay silent
    kFreeze,        // the process does not run for some time, and its launcher does not notice
    kStop,          // SIGSTOP, and some time later SIGCONT; the launcher learns of both
    kReset,         // the connections between two members break
    kSilence,       // nothing arrives between two members for some time
    kNoMemory,      // an allocation fails
    kNoThread,      // a thread cannot be started
    kClockJump,     // the calendar clock jumps by hours
    kLeave,         // SIGTERM: the member must leave
    kResize,        // the host's number of slots changes
    kMisbehave,     // the member sends an invalid message to its launcher
    kNoDescriptor,  // a descriptor cannot be created
    // Host faults, for hosts with agents.
    kAgentKill,    // the agent dies, and its members with it
    kAgentFreeze,  // the agent does not run for some time; its members do
    kCutOff,       // nothing arrives between launcher and agent for some time; members reach each other
    kBreak,        // the connection to the agent breaks in the middle of a message
    kHostLoss,     // the host is switched off, and later on again
  };
  static constexpr int kKinds = 18;
  static constexpr Kind kFirstOfHosts = Kind::kAgentKill;

  Kind kind = Kind::kKill;
  absl::Duration at;
  absl::Duration lasts;
  uint64_t choice = 0;   // chooses the member
  uint64_t choice2 = 0;  // chooses the other member, or a number
};

// Returns a name such as "kill" or "power loss".
const char* Name(Fault::Kind kind);

struct Scenario {
  uint64_t seed = 0;
  int hosts = 1;  // 1: the members are the launcher's children; more: each host has an agent
  int members = 2;
  int min_members = 1;
  int max_members = 2;
  int64_t steps = 100;
  int64_t contradiction_every = 0;  // steps between contradictions of a rank; 0: never
  int64_t omission_every = 0;       // steps between omissions of an operation by a rank; 0: never
  uint64_t corrupted = 0;           // the number of the tensor message in which one bit is changed; 0: none
  absl::Duration compute;           // longest time between operations
  absl::Duration latency;           // the longest latency of a message
  absl::Duration tick;              // between two reads of the clock
  VirtualNetwork::Transport transport = VirtualNetwork::Transport::kMessages;
  Tunables tunables;
  std::vector<Fault> faults;  // in the order of their times
};

// Returns equal scenarios for equal seeds.
Scenario MakeScenario(uint64_t seed);

// Describes the scenario in a line or two.
std::string Describe(const Scenario& scenario);

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_SCENARIO_H_
