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

// A schedule that is about to begin, with its buckets looked up.
struct ResolvedSchedule {
  Schedule schedule;
  std::vector<AgreedBucket> buckets;
};

// A rank's side of the negotiation. It turns submissions into reports, and response lists into work. A report has only
// the id of a submission that is in the response cache.
//
// While a schedule is locked (runtime/step/step.h), the caller submits nothing here and takes no
// report. When a schedule begins, submissions made here are forgotten. When it is unlocked, the caller submits
// everything in flight here again, in the original order.
//
// A pure state machine; the Negotiator is its counterpart on the coordinator. Thread-compatible.
class Reporter {
 public:
  struct Options {
    RankId rank = 0;
    int world_size = 1;
    std::string identity;  // "host h, pid 42": names this rank in errors on other ranks
  };

  explicit Reporter(Options options);

  // From the next report on, the coordinator knows that `request` is ready on this rank.
  // REQUIRES: the process set exists in process_sets() and contains this rank (a removal that is under way is answered
  // with an error).
  void Submit(const TensorRequest& request);

  // The id of `request` in the response cache, by which schedules name it. nullopt if it is not in the cache.
  std::optional<CacheId> Find(const TensorRequest& request) const;

  // How many completions the program knew of when it made the next submission. While this number stays the same, later
  // submissions do not wait for earlier ones. If this is never called, the coordinator assumes that every submission
  // may have waited for earlier ones.
  void RecordCompletions(uint64_t learned_of) { learned_of_ = learned_of; }

  // After an unlock: the tensors that are submitted again were submitted for the first time at least this long ago.
  void SetAge(absl::Duration age) { report_.age = age; }

  // The schedule that was unlocked did not fit this rank's program.
  void RecordThatScheduleDidNotFit() { report_.last_schedule = RankReport::LastSchedule::kDidNotFit; }

  // Whether the program waits or runs now. The next report contains it if it differs from the last report; a report
  // with submissions says that the program runs.
  void RecordProgram(RankReport::Program program) {
    has_program_news_ = program != told_program_;
    report_.program = program;
  }

  // This rank submits nothing more, and waits for what it has in flight. The next report says so. If a schedule is
  // locked, this report comes after the unlock.
  void Drain();

  // This rank shuts down, so the next report is its last. If a schedule is locked, this report comes after the unlock.
  void ShutDown();

  // Whether the next report contains anything. An identity counts too: this rank reports it at first, so that errors of
  // other ranks can name this rank even if it never submits anything.
  bool has_news() const {
    return has_program_news_ || !report_.identity.empty() || !report_.cached.empty() || !report_.repeated.empty() ||
           !report_.requests.empty() || report_.presence != RankReport::Presence::kPresent;
  }

  // The report to send to the coordinator now.
  // REQUIRES: no schedule is locked.
  RankReport TakeReport();

  // The work of this rank from a response list, in the order of the list's parts. Every rank executes every bucket,
  // even of process sets that it is not in.
  struct Work {
    std::optional<JobSettings> settings;  // in the first work, and whenever they change
    std::vector<ReceiveMatch> matches;    // of this rank's receives
    std::vector<TensorError> errors;      // the errors that answer this rank's submissions
    std::vector<AgreedBucket> buckets;
    // Begins after the buckets: the caller submits everything in flight to it.
    std::optional<ResolvedSchedule> schedule;
    ResponseList::Job job = ResponseList::Job::kGoesOn;
  };

  // REQUIRES: no schedule is locked.
  // Errors: INVALID_ARGUMENT if the coordinator cannot have sent this list.
  absl::StatusOr<Work> Apply(const ResponseList& list);

  // The process sets after the last list that was applied.
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
