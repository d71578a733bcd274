#ifndef RONDA_RUNTIME_NEGOTIATION_REPORTER_H_
#define RONDA_RUNTIME_NEGOTIATION_REPORTER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/process_set_table.h"
#include "runtime/negotiation/response_cache.h"

namespace ronda {

// A rank's own side of the negotiation: turns its submissions into reports, by id where the response cache knows them,
// and response lists into work.
//
// A pure state machine; the Negotiator is its counterpart on the coordinator rank. Thread-compatible.
class Reporter {
 public:
  struct Options {
    RankId rank = 0;
    int world_size = 1;
    std::string identity;  // "host h, pid 42": how errors on other ranks call this one
  };

  explicit Reporter(Options options);

  // The next report says that `request` is ready here.
  // REQUIRES: the process set exists in process_sets() and this rank is in it (a removal that is under way is answered
  // with an error).
  void Submit(TensorRequest request);

  // The next report is the last one.
  void Leave() { report_.membership = RankReport::Membership::kLeaving; }

  // True at first if there is an identity to tell: errors about a rank that never submits anything name it too.
  bool has_news() const {
    return !report_.identity.empty() || !report_.cached.empty() || !report_.repeated.empty() ||
           !report_.requests.empty() || report_.membership == RankReport::Membership::kLeaving;
  }

  // What to send to the coordinator rank now.
  RankReport TakeReport();

  // What a response list means for this rank, in the order in which it must be done. Every rank does every bucket,
  // also those of process sets that it is not in.
  struct Work {
    std::optional<JobSettings> settings;  // in the first work
    std::vector<TensorError> errors;      // those that answer this rank's submissions
    std::vector<AgreedBucket> buckets;
    ResponseList::Job job = ResponseList::Job::kGoesOn;
  };

  // Errors: INVALID_ARGUMENT if the coordinator rank cannot have sent this list.
  absl::StatusOr<Work> Apply(const ResponseList& list);

  // The process sets after the last list that was applied.
  const ProcessSetTable& process_sets() const { return process_sets_; }

 private:
  absl::StatusOr<AgreedBucket> Resolve(const Bucket& bucket);
  absl::StatusOr<std::shared_ptr<const Response>> Resolve(const Execution& execution) const;
  absl::Status FindParticipants(AgreedBucket* bucket) const;
  absl::Status CheckBelongs(const AgreedBucket& bucket, const Response& response) const;
  void Answered(TensorKeyView key);
  void RepeatEvicted(const std::vector<ResponseCache::Evicted>& evicted);

  const Options options_;
  std::optional<ResponseCache> cache_;  // of rank 0's capacity, once that is known
  ProcessSetTable process_sets_;
  RankReport report_;                         // the next one
  TensorKeyMap<CacheId> by_id_;               // submitted by id and not answered yet
  absl::flat_hash_set<ProcessSetId> joined_;  // process sets this rank has joined, until all have
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_REPORTER_H_
