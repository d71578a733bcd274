// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_NEGOTIATION_SIMULATION_H_
#define RONDA_TESTS_RUNTIME_NEGOTIATION_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/pending_tensors.h"
#include "runtime/negotiation/recording.h"
#include "runtime/negotiation/reporter.h"
#include "runtime/step/locked_schedule.h"

namespace ronda {

// The settings of a simulation. Simulations with equal settings run identically.
struct World {
  int ranks = 2;
  int names = 4;  // tensors that are submitted again and again
  size_t cache_capacity = 64;
  uint32_t seed = 1;
  int mismatch_percent = 3;  // of the submissions, which then contradict the others
  int late_percent = 1;      // of the submissions of a rank that has joined; it skips the rest
  int identical_steps = 0;   // before a schedule begins; 0 means no schedules and no training loop
};

inline void PrintTo(const World& world, std::ostream* out) {
  *out << world.ranks << " ranks, " << world.names << " names, cache of " << world.cache_capacity << ", seed "
       << world.seed;
}

// Runs reporters and a negotiator in virtual time, with random orders, delays and subsets of ranks. Every message is
// encoded, and is delivered after a delay. Ranks add, remove and join process sets, submit single tensors and groups,
// and send and receive. Some submissions contradict those of other ranks, and some tensors miss their deadlines.
//
// Some properties are checked during the run. A rank gets answers only for its tensors in flight. An operation matches
// the submission of every rank that takes part. A member that takes no part has joined. All ranks carry out the same
// buckets in the same order. Other properties are checked at the end, by a model that knows only the ranks' tensors in
// flight: each error must have a cause, and no tensor may lack an answer that it should have.
//
// In worlds with schedules, ranks also run a training loop for some time, with other operations in between. Ranks enter
// the buckets of a schedule at random times, votes and unlock requests reach the ranks at random later times, and ranks
// unlock for every possible reason. While a schedule is locked, rank 0 gets no report and sends no list, except for
// messages that were already in flight. A bucket is carried out only if its vote is won. In the end all ranks must have
// carried out the same buckets, under the same ids.
class Simulation {
 public:
  explicit Simulation(const World& world);

  // Makes random steps, then delivers all messages in flight.
  void Run(int steps);

  // Shuts down some ranks, waits until the deadlines of the waiting tensors have passed, and then shuts down all ranks,
  // so that the job ends.
  void Finish();

  // The violations that were found. The first violation stops the simulation.
  const std::vector<std::string>& violations() const { return violations_; }

  const Recording& recording() const { return recording_; }

  // How often each event happened. A simulation without events proves nothing.
  struct Counts {
    int executed = 0, mismatches = 0, joins = 0, without_joined = 0, sets = 0, sets_by_members = 0, removals = 0,
        deadlines = 0, groups = 0;
    int repeated = 0, by_id = 0, sent = 0, refused = 0;
    // Events of schedules, such as the reasons why ranks wanted to unlock.
    int schedules = 0, scheduled = 0, vetoes = 0;
    int unlocked_for_tensor = 0, unlocked_for_change = 0, unlocked_for_join = 0, unlocked_for_set = 0,
        unlocked_for_shutdown = 0;
    int unlocked_for_request = 0, unlocked_for_lateness = 0, unlocked_for_lack = 0;
    int stale_reports = 0, early_requests = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Rank {
    explicit Rank(Reporter own) : reporter(std::move(own)) {}

    Reporter reporter;
    LockedSchedule schedule;
    std::vector<AgreedBucket> buckets;  // of the schedule
    std::deque<std::string> inbox;
    std::map<TensorKey, TensorRequest> in_flight;
    std::vector<std::string> history;  // the buckets it has carried out
    size_t lists = 0;                  // how many lists it has applied
    std::set<ProcessSetId> joined;     // the sets that it had joined when it began to apply the latest list
    int next_plan = 0;
    enum class State { kPresent, kShuttingDown, kDone } state = State::kPresent;

    std::deque<TensorKey> fresh;           // submitted, and not yet taken by the engine
    std::map<uint64_t, TensorKey> popped;  // taken by the engine, in the order of their submission
    uint64_t submissions = 0;
    int next_in_loop = 0;
    int next_stray = 0;
    absl::Time asleep_until;
    std::optional<uint64_t> in_bucket;  // the vote of the schedule that it waits for
    uint64_t votes = 0;                 // how many votes of the locked schedule it has seen
    absl::Time since;                   // when it entered the bucket, or saw the last vote
    uint64_t own_request = 0;           // the last schedule that it has requested to unlock
    uint64_t known_request = 0;         // the last schedule that it knows some rank to have requested to unlock
    std::deque<uint64_t> requests;      // requests that have not reached it yet
  };
  // The vote on one bucket of a schedule.
  struct Vote {
    int entered = 0;
    int vetoes = 0;
  };
  // A planned change of the process sets. All ranks that take part submit the same plans in the same order.
  struct Plan {
    TensorRequest request;
    int adds = -1;  // the plan that added the set that this one removes
  };
  // An error, and the requests in flight that it has answered.
  struct Answer {
    TensorError error;
    std::vector<TensorRequest> requests;
  };

  int Random(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  bool Percent(int percent) { return Random(100) < percent; }
  void Violate(std::string text) { violations_.push_back(std::move(text)); }

  void Step();
  void SubmitSomething(RankId id);
  void Submit(RankId id, TensorRequest request);
  void SubmitGroup(RankId id, ProcessSetId set, int number);
  void SubmitPlan(RankId id);
  void SendReport(RankId id);
  void ReceiveReport(RankId id);
  void Broadcast();
  void Inspect();
  void ApplyList(RankId id);
  void Drain();
  void Leave(RankId id);

  // Schedules.
  bool InLoop() const;
  void SubmitLoop(RankId id);
  void SubmitStray(RankId id);
  void ShutDownInTheLoop();
  bool IsFree(RankId id, int item);
  void HandOverFresh(RankId id);
  void SubmitAgain(RankId id);
  void SubmitPopped(RankId id, const TensorKey& key);
  void CountCause(const TensorRequest& request);
  void ActInSchedule(RankId id);
  void DeliverRequest(RankId id);
  void ConsiderUnlocking(RankId id);
  void RequestUnlock(RankId id, uint64_t schedule);
  void Enter(RankId id);
  void SeeVote(RankId id);
  void Unlock(RankId id);
  bool DrainSchedule();
  bool LetWaitsTimeOut();
  void Complete(RankId id, std::map<TensorKey, TensorRequest>::iterator it);

  TensorRequest Tensor(int number, ProcessSetId set, RankId rank);
  void SetOperation(int number, const Group& members, TensorRequest* request) const;
  void Disturb(TensorRequest* request);
  const Plan& PlanAt(int number);
  ProcessSetId RandomSetOf(RankId id);

  void ReceiveError(RankId id, size_t list, size_t number, const TensorError& error);
  void ReceiveBucket(RankId id, const AgreedBucket& bucket);
  void ReceiveExecution(RankId id, const AgreedBucket& bucket, const Response& response);
  void CheckCause(const Answer& answer);
  void CheckCauses();
  bool AllAreReady(const TensorKey& key, const Group& participants) const;
  bool GroupIsReady(const TensorRequest& member, const Group& members) const;
  void CheckNothingIsLeftBehind();
  void CheckRightlyWaits(RankId id, const TensorKey& key, const TensorRequest& request);
  bool HasJoin(const Rank& rank, ProcessSetId set) const {
    return rank.in_flight.contains(TensorKey(set, std::string(kJoinName)));
  }

  const World world_;
  std::mt19937 random_;
  Negotiator negotiator_;
  StallInspector inspector_;
  std::optional<JobSettings> settings_;  // not yet sent
  bool ended_ = false;                   // the last list has been sent
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Rank> ranks_;
  std::vector<std::deque<std::string>> up_;  // reports under way, by rank
  std::vector<Plan> plans_;
  std::map<int, ProcessSetId> set_of_plan_;
  std::map<std::pair<size_t, size_t>, Answer> answers_;  // by list and place in it
  Recording recording_;
  std::map<std::pair<uint64_t, uint64_t>, Vote> votes_;  // by schedule and place in it
  uint64_t schedules_ = 0;                               // how many schedules rank 0 has begun
  std::vector<std::string> violations_;
  Counts counts_;
};

// Returns whether two ranks' requests match. Models the rules without using the code under test.
bool MayMeet(const TensorRequest& a, const TensorRequest& b);

}  // namespace ronda

#endif  // RONDA_TESTS_RUNTIME_NEGOTIATION_SIMULATION_H_
