#ifndef RONDA_RUNTIME_NEGOTIATION_NEGOTIATOR_H_
#define RONDA_RUNTIME_NEGOTIATION_NEGOTIATOR_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/fusion/fusion_planner.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/response_cache.h"

namespace ronda {

// Decides which tensors every rank has submitted, and in which order to run them. Lives on the coordinator rank.
//
// Ranks report whenever they have something new; there are no rounds. A tensor is agreed on when the last rank has
// reported it, and tensors are run in the order in which they were agreed on. Submissions that contradict each other
// still wait for the last rank, and then fail on all of them, with a text that names two ranks and what each said.
// A rank that leaves fails every tensor that lacks its submission, now and later.
//
// A pure state machine: it owns no thread, reads no clock and does no I/O.
//
// Thread-compatible: callers serialise access.
class Negotiator {
 public:
  struct Options {
    int world_size = 1;            // ranks whose agreement is needed
    size_t cache_capacity = 1024;  // entries of the response cache; must be the same on every rank
    FusionPlanner::Options fusion;
  };

  explicit Negotiator(Options options);

  // Takes `report` from `rank`, at time `now`.
  // Errors: INVALID_ARGUMENT if no correct rank can have sent this: a tensor reported twice, a report after leaving.
  absl::Status Add(RankId rank, RankReport report, absl::Time now);

  // Fails `name` with `status`, for the ranks that have submitted it. Nothing happens if no rank has.
  void Fail(absl::string_view name, absl::Status status);

  // What has been decided since the last call, fused into buckets. Every rank must apply it.
  ResponseList TakeResponses();

  // A tensor that some ranks wait for, or, with an empty name, the end of the job.
  struct Waiting {
    std::string name;
    std::string description;      // "tensor 'x' (allreduce of float32 [3])"
    absl::Time since;             // when its first submission arrived
    std::vector<RankId> present;  // ascending
    std::vector<RankId> missing;  // ascending
  };

  // Everything that waits since `limit` or longer, oldest first.
  std::vector<Waiting> WaitingSince(absl::Time limit) const;

  bool anything_waits() const { return !pending_.empty() || (leavers_ > 0 && leavers_ < options_.world_size); }

  // The tensors that `rank` has submitted and that wait for others, at most `limit` names.
  std::vector<std::string> SubmittedBy(RankId rank, size_t limit) const;

  // "rank 1 (host h, pid 42)", as far as it has introduced itself.
  std::string Describe(RankId rank) const;

 private:
  enum class Submitted : uint8_t { kNo, kInFull, kById };

  struct Pending {
    TensorRequest request;  // the first one to arrive
    RankId first_rank = 0;
    absl::Time since;
    std::vector<Submitted> ranks;     // by rank
    int submitted = 0;                // entries of `ranks` that are not kNo
    CacheId cached_as = 0;            // the entry that every submission so far named; 0: there is none
    std::vector<int64_t> first_dims;  // allgather: by rank
    std::string mismatch;             // empty while the submissions agree
  };

  absl::Status Submit(RankId rank, const TensorRequest& request, CacheId id, absl::Time now);
  void Merge(RankId rank, const TensorRequest& request, CacheId id, Pending* pending);
  void Leave(RankId rank, absl::Time now);
  void Conclude(const std::string& name);
  void FailForDeparture(const std::string& name);
  void ForgetReportsById(const std::string& name);

  const Options options_;
  const FusionPlanner planner_;
  ResponseCache cache_;
  absl::flat_hash_map<std::string, Pending> pending_;
  std::vector<std::string> identities_;  // by rank; empty until it reports
  std::vector<bool> left_;               // by rank
  int leavers_ = 0;
  absl::Time first_leave_;
  std::vector<TensorError> errors_;  // decided, not yet taken
  std::vector<Agreed> agreed_;       // decided, not yet taken
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_NEGOTIATOR_H_
