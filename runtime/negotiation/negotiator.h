// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NEGOTIATION_NEGOTIATOR_H_
#define RONDA_RUNTIME_NEGOTIATION_NEGOTIATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/negotiation/fusion_planner.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/participants.h"
#include "runtime/negotiation/pending_tensors.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/step/step_observer.h"

namespace ronda {

// Finds the tensors that all ranks have submitted, and decides in which order the ranks run them. Runs on the
// coordinator.
//
// Ranks report whenever they have new submissions; there are no fixed rounds. The ranks agree on a tensor when the last
// rank of its process set has reported the tensor, or has joined. Tensors run in the order in which the ranks agree on
// them. If submissions of a tensor contradict each other, the tensor fails on all ranks, but only after the last rank
// has reported it. The error quotes two of the ranks. A tensor that a rank has refused fails in the same way. A receive
// in the order of arrival gets the longest-waiting of the messages that no other receive has named. If a rank shuts
// down, every tensor that lacks its submission fails, now and later. docs/protocol.md explains the states and the
// rules.
//
// When the job repeats its training steps, a response list begins a schedule (runtime/step/step.h). Until the schedule
// is unlocked, the ranks negotiate nothing.
//
// A pure state machine, which owns no thread, reads no clock, and does no I/O. Its decisions depend only on the calls
// that it gets, so a recorded negotiation can be replayed (recording.h).
//
// Thread-compatible.
class Negotiator {
 public:
  struct Options {
    int world_size = 1;            // ranks whose agreement is needed
    size_t cache_capacity = 1024;  // entries of the response cache; must be the same on every rank
    WaitLimits limits;             // of tensors that have no limits themselves
    FusionPlanner::Options fusion;
    struct Schedules {
      int identical_steps = 0;                    // a schedule begins after this many; 0: no schedules
      size_t min_bucket_bytes = size_t{1} << 20;  // in schedules; a smaller one waits for more
      absl::Duration hold = absl::Microseconds(100);
    } schedule;
  };

  // The limits for the bytes in a bucket.
  struct BucketSizes {
    size_t threshold = 0;         // FusionPlanner::Options::threshold, also in schedules
    size_t min_bucket_bytes = 0;  // in schedules
  };

  // Called for each submission in a report, whether the report has it in full or only its id.
  using ReadyCallback = std::function<void(RankId, const TensorRequest&)>;

  explicit Negotiator(Options options);

  // Processes a report that `rank` has sent. `now` is the current time. `on_ready` may be nullptr, and is not kept.
  // Errors: INVALID_ARGUMENT if no correct rank can have sent this report. For example, it reports a tensor twice, a
  // process set never existed or lacks the rank, a root is outside the process set, or the report comes after a
  // shutdown or during a locked schedule.
  absl::Status Add(RankId rank, const RankReport& report, absl::Time now, const ReadyCallback* on_ready = nullptr);

  // Fails a tensor and its whole group with `status`, for all ranks that have submitted them. Does nothing if no rank
  // has submitted the tensor.
  void Fail(TensorKeyView tensor, const absl::Status& status);

  // Returns the decisions since the last call, with the tensors fused into buckets. Every rank must apply the
  // decisions. If the list begins a schedule, no tensor is waiting any more.
  ResponseList TakeResponses();

  // Must be called when the ranks have unlocked the schedule. `progress` says how far the ranks have carried out the
  // schedule. REQUIRES: a schedule is locked.
  void Unlock(const ScheduleProgress& progress);

  // Sets the sizes of buckets, from the next list on.
  void SetBucketSizes(const BucketSizes& sizes);

  // Returns whether the schedule that a list began last is still locked.
  bool locked() const { return steps_.locked(); }

  // Returns a view of the waiting tensors. It is valid until the next call of a non-const method.
  WaitingView waiting() const { return {{pending_, joins_, groups_, ranks_}, options_.limits, own_limits_}; }
  bool anything_waits() const { return !waiting().empty(); }

  // Returns "rank 1 (host h, pid 42)", or "rank 1" if the rank has not yet reported its host and pid.
  std::string Describe(RankId rank) const { return ranks_.Describe(rank); }

 private:
  // The parts of a rank's reports that the negotiator cannot process yet.
  struct Inbox {
    absl::flat_hash_set<CacheId> ignored;      // ids reported after their eviction: the rank will repeat them
    std::vector<TensorRequest> delayed_joins;  // handled after the rank has repeated them
  };
  // When a submission counts as made. A repeated request counts as made when it was first submitted, even if the rank
  // has joined since then.
  enum class Time { kNow, kBeforeJoining };
  // Whether a report was sent before the latest schedule began.
  enum class Freshness { kFresh, kStale };

  // The functions that process the parts of a report.
  absl::Status SubmitById(RankId rank, CacheId id);
  absl::Status StartById(RankId rank, CacheId id);
  absl::Status Repeat(RankId rank, const RepeatedRequest& repeated);
  absl::Status Submit(RankId rank, const TensorRequest& request, Time time);
  absl::Status SubmitJoin(RankId rank, const TensorRequest& request);
  PendingTensor* Start(RankId rank, PendingTensor* tensor);
  void Merge(RankId rank, const TensorRequest& request, PendingTensor* tensor);
  void MergeDifference(RankId rank, const TensorRequest& request, PendingTensor* tensor) const;
  void MergeRefusal(RankId rank, const TensorRequest& request, PendingTensor* tensor) const;
  absl::Status Arrive(RankId rank, PendingTensor* tensor);
  bool HasJoined(RankId rank, ProcessSetId set) const;
  void Refuse(RankId rank, TensorKeyView tensor, absl::Status status);
  absl::Status HasJoinedError(RankId rank, const TensorRequest& request) const;

  // The functions that process joins and departures.
  void Join(RankId rank, const TensorRequest& request);
  void ConcludeJoins(ProcessSetId set);
  void FailJoins(ProcessSetId set, const absl::Status& status);
  void FailJoinsForDeparture(ProcessSetId set);
  // Fails the tensors that wait for a rank that submits nothing more.
  void FailWithout(RankId rank);
  void FailForDeparture(PendingTensor* tensor);
  absl::Status DepartureError(RankId rank, const TensorRequest& request) const;

  // The functions that assign messages to receives in the order of arrival.
  void MatchReceives();
  bool MatchReceive(PendingTensor* receive);

  // The functions that conclude tensors.
  void Conclude(PendingTensor* tensor);
  std::vector<RankId> JoinedWithout(const PendingTensor& tensor) const;
  absl::Status Verdict(const PendingTensor& tensor, const std::vector<RankId>& joined) const;
  void Release(ConcludedTensor concluded);
  void ReleaseGroups();
  void ChangeProcessSets(TensorRequest* request);
  void FailAllOf(ProcessSetId set);
  void FailGroup(TensorKeyView group, const absl::Status& status);
  // Makes all groups of `tensor` fail with `verdict`, because ranks have submitted it in different groups.
  void FailGroupsOf(const PendingTensor& tensor, const absl::Status& verdict);
  void AnswerAll(HeldGroup group, const absl::Status& status);
  void Answer(std::unique_ptr<PendingTensor> tensor, const absl::Status& status);

  // The functions for locked schedules.
  StepObserver::Planning PlanningOfSteps() const;
  absl::StatusOr<Freshness> CheckSchedule(RankId rank, const RankReport& report) const;
  void Watch(const Agreed& agreed);
  std::optional<Schedule> BeginSchedule();
  void DescribeStep(std::vector<StepTensor>& step) const;
  bool OnlyTheseWait(const StepBuckets& buckets) const;

  WaitLimits LimitsOf(const TensorRequest& request) const { return request.limits.value_or(options_.limits); }

  const Options options_;
  BucketSizes sizes_;
  ResponseCache cache_;
  ProcessSetTable process_sets_;
  JobRanks ranks_;
  PendingTable pending_;
  JoinTable joins_;
  GroupTable groups_;
  std::vector<Inbox> inboxes_;               // by rank
  absl::Time now_;                           // of the last report
  absl::Time submitted_;                     // when the last submission of that report was made
  const ReadyCallback* on_ready_ = nullptr;  // of this report
  WaitingView::OwnLimits own_limits_ = WaitingView::OwnLimits::kNone;
  std::vector<TensorKey> receives_;    // receives in order of arrival, as they came; some may have failed since
  std::vector<ReceiveMatch> matches_;  // decided, not yet taken
  std::vector<TensorError> errors_;    // decided, not yet taken
  std::vector<Agreed> agreed_;         // decided, not yet taken
  // Groups that must fail, because ranks disagree about which tensors are in them.
  std::vector<std::pair<TensorKey, absl::Status>> failed_groups_;
  StepObserver steps_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_NEGOTIATOR_H_
