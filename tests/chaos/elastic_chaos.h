// SPDX-License-Identifier: Apache-2.0

// Injures the members of an elastic job while it trains: kills them, stops them, and asks them to leave.
#ifndef RONDA_TESTS_CHAOS_ELASTIC_CHAOS_H_
#define RONDA_TESTS_CHAOS_ELASTIC_CHAOS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/chaos/job_log.h"
#include "tests/chaos/round_plan.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda::chaos {

// $CHAOS_SEED, or a random one.
uint64_t SeedOfChaos();
// The value of $CHAOS_SECONDS, if it is set.
std::optional<absl::Duration> TimeForChaos();

// The resources of a process.
struct Footprint {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t resident_kib = 0;
};

// A job of `rondarun -np 4 --min-np 2`, whose members get these signals at random:
//
//   SIGKILL              most often, also to members that have just been started. In one case in three, another member
//                        is killed within 60 ms, while the others meet
//   SIGTERM              the member leaves
//   SIGSTOP              the launcher kills the member after 10 s
//   SIGSTOP and SIGCONT  within half a second, so that the member continues
//
// Applying an entry of this list is called a turn. The next turn comes only after the job has completed a step, because
// the launcher gives up a job that fails three times at the same step. At any time, one member is the keeper, which
// gets no signal, so that the state is never lost. Most keepers eventually become rank 0. Sometimes a turn instead
// kills the keeper and makes another member the keeper.
//
// Thread-compatible.
class ElasticChaos {
 public:
  struct Options {
    std::vector<std::string> program;
    uint64_t seed = 0;
    absl::Duration pause = absl::Seconds(1);  // mean time from one turn to the next
    int stops = 1;                            // at most
  };
  enum class Keeper { kChanges, kStays };

  explicit ElasticChaos(Options options);

  // Injures members until `is_enough` returns true. Checks `is_enough` before each signal.
  void InjureUntil(const std::function<bool(const JobLog&)>& is_enough, Keeper keeper);

  // Waits for the job to end. Expects that it ends without an error, has lost no step, and leaves no process and no
  // file in /dev/shm. Also expects that the descriptors, threads and memory of the launcher and of the keepers do not
  // grow. Prints the events to standard output.
  void ExpectGoodEnd();

  const JobLog& log() const { return log_; }
  const std::string& output() const { return run_.out(); }

 private:
  // The resources of the launcher and of the current keeper, before a turn.
  struct Sample {
    Footprint launcher;
    int keeper = 0;
    Footprint kept;
  };

  void Catch();
  bool AwaitTurn(const std::function<bool(const JobLog&)>& is_enough);
  void TakeSample();
  void TakeTurn(const std::function<bool(const JobLog&)>& is_enough);
  std::vector<int> Veterans() const;  // the members in VictimsInEpoch() that certainly have the state
  bool ChangeKeeper();
  void ReplaceKeeper();
  void KillSomebody();
  void StopForAMoment();
  void Strike(int member, int signo);

  bool IsAlive(int member) const;
  // Returns the living members of the newest epoch, except the keeper and members that Strike() has hit.
  std::vector<int> VictimsInEpoch() const;
  std::vector<int> JoiningMembers() const;
  int AnyOf(const std::vector<int>& members) {
    return members[static_cast<size_t>(random_.Below(static_cast<int>(members.size())))];
  }

  void ExpectNothingLeft() const;
  void ExpectNoGrowth() const;
  void Tell() const;

  const Options options_;
  Random random_;
  LauncherRun run_;
  JobLog log_;
  int keeper_;
  std::set<int> veterans_;  // members at the last turn
  std::set<int> struck_;
  std::optional<int> struck_joining_member_;
  int stops_left_;
  std::map<std::string, int> counts_;  // of events
  std::vector<Sample> samples_;
  std::optional<absl::Time> killed_at_;     // set until the others have completed a step
  std::vector<absl::Duration> recoveries_;  // from a kill until the others have completed a step
};

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_ELASTIC_CHAOS_H_
