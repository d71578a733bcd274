// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NEGOTIATION_REPORTER_H_
#define RONDA_RUNTIME_NEGOTIATION_REPORTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/participants.h"
#include "runtime/negotiation/response_cache.h"

namespace ronda {

// A schedule that is about to begin, with the responses that its ids stand for.
struct ResolvedSchedule {
  Schedule schedule;
  std::vector<AgreedBucket> buckets;
};

// A rank's side of the negotiation, which turns submissions into reports, and response lists into work. A submission
// whose request is in the response cache is reported by its id alone.
//
// While a schedule is locked (runtime/step/step.h), the caller must not call Submit or TakeReport. When a schedule
// begins, the Reporter forgets its submissions. After the unlock, the caller submits all tensors in flight to the
// Reporter again, in the original order.
//
// A pure state machine, and the counterpart of the coordinator's Negotiator.
// Thread-compatible.
class Reporter {
 public:
  struct Options {
    RankId rank = 0;
    int world_size = 1;
    std::string identity;  // "host h, pid 42": names this rank in errors on other ranks
  };

  explicit Reporter(Options options);

  // Adds `request` to the next report, which tells the coordinator that `request` is ready on this rank.
  // REQUIRES: process_sets() has the request's process set, and this rank is in the set. (If the removal of the set is
  // in progress, the coordinator answers the request with an error.)
  void Submit(const TensorRequest& request);

  // Returns the id of `request` in the response cache; nullopt if it has none. Schedules name requests by these ids.
  std::optional<CacheId> Find(const TensorRequest& request) const;

  // Records how many completions the program knew of at the time of the next submission. As long as the number stays
  // the same, later submissions do not depend on earlier ones. If RecordCompletions is never called, the coordinator
  // assumes that every submission may depend on earlier ones.
  void RecordCompletions(uint64_t learned_of) { learned_of_ = learned_of; }

  // Must be called after each unlock. At least `age` has passed since the tensors that are submitted again were first
  // submitted.
  void SetAge(absl::Duration age) { report_.age = age; }

  // Records that the last schedule, which was unlocked, did not fit this rank's program.
  void RecordThatScheduleDidNotFit() { report_.last_schedule = RankReport::LastSchedule::kDidNotFit; }

  // Records whether the program waits or runs now. If this has changed since the last report, the next report says so.
  // A report with submissions always says that the program runs.
  void RecordProgram(RankReport::Program program) {
    has_program_news_ = program != told_program_;
    report_.program = program;
  }

  // Records that this rank submits nothing more, and waits for its tensors in flight. The next report says so. If a
  // schedule is locked, that report comes after the unlock.
  void Drain();

  // Records that this rank shuts down, so that its next report is its last one. If a schedule is locked, the next
  // report comes after the unlock.
  void ShutDown();

  // Returns whether the next report has any content. Even if the rank submits nothing, its first report contains its
  // identity, so that errors of other ranks can name it.
  bool has_news() const {
    return has_program_news_ || !report_.identity.empty() || !report_.cached.empty() || !report_.repeated.empty() ||
           !report_.requests.empty() || report_.presence != RankReport::Presence::kPresent;
  }

  // Returns the report that the rank must send to the coordinator now.
  // REQUIRES: no schedule is locked.
  RankReport TakeReport();

  // The work of this rank that a response list contains, in the order of the list's fields. Every rank executes every
  // bucket, even a bucket of a process set to which the rank does not belong.
  struct Work {
    std::optional<JobSettings> settings;  // in the first work, and whenever they change
    std::vector<ReceiveMatch> matches;    // of this rank's receives
    std::vector<TensorError> errors;      // the errors that answer this rank's submissions
    std::vector<AgreedBucket> buckets;
    // A schedule that begins after the buckets. The caller must submit all tensors in flight to the new schedule.
    std::optional<ResolvedSchedule> schedule;
    ResponseList::Job job = ResponseList::Job::kGoesOn;
  };

  // REQUIRES: no schedule is locked.
  // Errors: INVALID_ARGUMENT if the coordinator cannot have sent this list.
  absl::StatusOr<Work> Apply(const ResponseList& list);

  // Returns the capacity of the response cache, which is 0 until the first list has been applied.
  size_t cache_capacity() const { return cache_ ? cache_->capacity() : 0; }

  // Returns the process sets as they are after the last applied list.
  const ProcessSetTable& process_sets() const { return process_sets_; }

 private:
  absl::Status ApplySettings(const JobSettings& settings);
  absl::StatusOr<ResolvedSchedule> Begin(const Schedule& schedule);
  void ForgetReported();
  absl::StatusOr<AgreedBucket> CarryOut(const Bucket& bucket);
  absl::StatusOr<AgreedBucket> Resolve(const Bucket& bucket) const;
  absl::StatusOr<std::shared_ptr<const Response>> Resolve(const Execution& execution) const;
  absl::Status FindParticipants(AgreedBucket* bucket) const;
  absl::Status CheckBelongs(const AgreedBucket& bucket, const Response& response) const;
  void Answered(TensorKeyView key);
  void RepeatEvicted(const std::vector<ResponseCache::Evicted>& evicted);

  const Options options_;
  std::optional<ResponseCache> cache_;  // with rank 0's capacity, once known
  ProcessSetTable process_sets_;
  uint64_t schedule_ = 0;  // the number of the last schedule that has begun
  RankReport::Presence presence_ = RankReport::Presence::kPresent;
  RankReport report_;                                              // the next report
  RankReport::Program told_program_ = RankReport::Program::kRuns;  // in the last report
  bool has_program_news_ = false;                                  // report_.program differs
  std::optional<uint64_t> learned_of_;                             // with the last submission
  std::optional<uint64_t> reported_;                               // learned_of_ in the last report, if it is known
  TensorKeyMap<CacheId> by_id_;                                    // submitted by id and not answered yet
  absl::flat_hash_set<ProcessSetId> joined_;  // process sets that this rank has joined, until all members have
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_REPORTER_H_
