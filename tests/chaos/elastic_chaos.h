// Kills, stops and asks members of an elastic job to leave while it trains.
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
// $CHAOS_SECONDS, if it is set.
std::optional<absl::Duration> TimeForChaos();

// What a process holds.
struct Footprint {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t resident_kib = 0;
};

// A job of `rondarun -np 4 --min-np 2`, and what happens to its members:
//
//   SIGKILL        most often; one time in three another one up to 60 ms later, while the others meet; also to members
//                  that have just been started
//   SIGTERM        a member leaves
//   SIGSTOP        the launcher kills it after 10 s
//   SIGSTOP and SIGCONT  in less than half a second: it goes on
//
// Between two turns the job completes a step: the launcher gives up a job that fails three times at the same one. One
// member at a time, the keeper, is spared, so that the state is never lost; most keepers are rank 0 sooner or later.
// When another one takes over, the old keeper is killed.
//
// Thread-compatible.
class ElasticChaos {
 public:
  struct Options {
    std::vector<std::string> program;
    uint64_t seed = 0;
    absl::Duration pause = absl::Seconds(1);  // from one turn to the next, in the mean
    int stops = 1;                            // at most
  };
  enum class Keeper { kChanges, kStays };

  explicit ElasticChaos(Options options);

  // Injures members until `is_enough`, which is asked before each signal.
  void InjureUntil(const std::function<bool(const JobLog&)>& is_enough, Keeper keeper);

  // Waits for the end of the job. Expects that it ends well, that no step was lost, that nothing is left of it, and
  // that neither the launcher nor a keeper has grown. Tells what has happened on standard output.
  void ExpectGoodEnd();

  const JobLog& log() const { return log_; }
  const std::string& output() const { return run_.out(); }

 private:
  // What the launcher, and the keeper of that time, held before a turn.
  struct Sample {
    Footprint launcher;
    int keeper = 0;
    Footprint kept;
  };

  void Catch();
  bool AwaitTurn(const std::function<bool(const JobLog&)>& is_enough);
  void TakeSample();
  void TakeTurn(const std::function<bool(const JobLog&)>& is_enough);
  std::vector<int> Veterans() const;  // of VictimsInEpoch, those that certainly have the state
  bool ChangeKeeper();
  void ReplaceKeeper();
  void KillSomebody();
  void StopForAMoment();
  void Strike(int member, int signo);

  bool IsAlive(int member) const;
  // Of the newest epoch, without the keeper and those that were struck.
  std::vector<int> VictimsInEpoch() const;
  std::vector<int> Newcomers() const;
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
  std::optional<int> struck_newcomer_;
  int stops_left_;
  std::map<std::string, int> counts_;  // of what has happened
  std::vector<Sample> samples_;
  std::optional<absl::Time> killed_at_;     // set until the others have completed a step
  std::vector<absl::Duration> recoveries_;  // from kills to that
};

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_ELASTIC_CHAOS_H_
