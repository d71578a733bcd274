// What a seed stands for: a job, its machine, and the faults that come upon it.
#ifndef RONDA_TESTS_SIMULATION_SCENARIO_H_
#define RONDA_TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/config.h"

namespace ronda::simulation {

// A thing that goes wrong, or changes, at some moment. The numbers choose among the members that live then.
struct Fault {
  enum class Kind {
    kKill,          // SIGKILL: the connections are reset
    kPowerLoss,     // the process is gone, and its connections stay silent
    kFreeze,        // nothing of the process runs for some time, and its launcher does not know
    kStop,          // SIGSTOP, and SIGCONT some time later: the launcher knows
    kReset,         // the connections between two members break
    kSilence,       // nothing arrives between two members for some time
    kNoMemory,      // an allocation fails
    kNoThread,      // a thread cannot be started
    kClockJump,     // the machine's date is set, by hours
    kLeave,         // SIGTERM: the member is to leave
    kResize,        // the host has another number of slots
    kMisbehave,     // the member says nonsense to its launcher
    kNoDescriptor,  // a descriptor cannot be made
  };
  static constexpr int kKinds = 13;

  Kind kind = Kind::kKill;
  absl::Duration at;
  absl::Duration lasts;
  uint64_t choice = 0;   // of the member
  uint64_t choice2 = 0;  // of the other one, or of a number
};

// "kill", "power loss", ...
const char* Name(Fault::Kind kind);

struct Scenario {
  uint64_t seed = 0;
  int members = 2;
  int min_members = 1;
  int max_members = 2;
  int64_t steps = 100;
  int64_t contradiction_every = 0;  // so many steps a rank contradicts the others; 0: never
  int64_t omission_every = 0;       // so many steps a rank leaves an operation out; 0: never
  uint64_t corrupted = 0;           // the number of a message of tensors of which a bit is changed; 0: none
  absl::Duration compute;           // longest time between operations
  absl::Duration latency;           // longest of a message
  absl::Duration tick;              // between looks at the clock
  Tunables tunables;
  std::vector<Fault> faults;  // in their order
};

// Equal for equal seeds.
Scenario MakeScenario(uint64_t seed);

// In a line or two.
std::string Describe(const Scenario& scenario);

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_SCENARIO_H_
