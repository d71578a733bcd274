// SPDX-License-Identifier: Apache-2.0

// Tensors on which the ranks have not agreed yet. A tensor is pending until every participant has submitted it, and is
// then concluded. A concluded tensor of a group is held until all tensors of the group are concluded. This file also
// has StallInspector, which finds tensors that have waited too long.
#ifndef RONDA_RUNTIME_NEGOTIATION_PENDING_TENSORS_H_
#define RONDA_RUNTIME_NEGOTIATION_PENDING_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/group.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/participants.h"

namespace ronda {

// A tensor that some of its ranks have submitted. As long as all of these ranks have reported it by the same id, the
// tensor refers to the response with this id in the response cache, and nothing is copied.
//
// Invariant: `cached` is the response with the id `cached_as`, or null if `cached_as` is 0.
struct PendingTensor {
  const TensorRequest& request() const { return cached ? cached->request : spelled; }

  // From now on, the response is sent in full instead of by its id.
  void SpellOut();

  // Returns whether the cached response equals the agreed response, to which the ranks in `joined` contribute no rows.
  bool CachedResponseHolds(const std::vector<RankId>& joined) const;

  // Moves the tensor's fields into a response, to which the ranks in `joined` contribute no rows.
  std::shared_ptr<Response> TakeResponse(const std::vector<RankId>& joined);

  std::shared_ptr<const Response> cached;
  CacheId cached_as = 0;
  TensorRequest spelled;            // the first submission; meaningless while `cached`
  std::vector<int64_t> first_dims;  // by position, if they are gathered; meaningless while `cached`

  std::shared_ptr<const Group> participants;  // the ranks that carry it out
  PositionSet submitted;                      // of `participants`
  int missing = 0;                            // participants that have neither submitted it nor joined
  RankId first_rank = 0;                      // the first to submit it
  absl::Time since;                           // when the first rank submitted it
  uint64_t sequence = 0;                      // the order in which tensors became pending
  std::string mismatch;                       // empty while the submissions agree
  std::vector<std::string> other_groups;      // groups other than the first submission's in which ranks submitted it
  std::string refusal;                        // the text of the lowest rank that has refused it; empty: none
  RankId refused_by = 0;                      // that rank
};

// The tensors that wait for ranks, by name and by id. An entry keeps its address until it is extracted. The table
// reuses the memory of entries, so it allocates nothing in a job that repeats its training steps.
//
// Thread-compatible.
class PendingTable {
 public:
  PendingTable() = default;
  PendingTable(PendingTable&&) = default;

  // Returns the pending tensor with this name, or nullptr if no such tensor is pending.
  PendingTensor* Find(TensorKeyView key) const;
  // Returns the tensor for which all ranks so far have reported `id`, or nullptr if no such tensor is pending.
  PendingTensor* FindById(CacheId id) const;

  // These functions add a pending tensor. REQUIRES: no tensor with this name is pending.
  PendingTensor* Start(const TensorRequest& request);
  PendingTensor* Start(CacheId id, std::shared_ptr<const Response> response);

  // Must be called if the tensor differs from the cached response that has its id, or if this response was evicted.
  void SpellOut(PendingTensor* tensor);

  std::unique_ptr<PendingTensor> Extract(PendingTensor* tensor);

  // Takes back an extracted tensor that is no longer needed, and keeps its memory for later tensors.
  void Recycle(std::unique_ptr<PendingTensor> tensor);

  // Removes all tensors.
  void Clear();

  // Returns the tensors for which `wanted` returns true, in the order in which they became pending.
  std::vector<PendingTensor*> Select(const std::function<bool(const PendingTensor&)>& wanted) const;

  // Calls `visit` for all pending tensors, in no particular order.
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const std::unique_ptr<PendingTensor>& tensor : tensors_) visit(*tensor);
  }

  bool empty() const { return tensors_.empty(); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(const TensorKeyView& key) const { return TensorKeyHash()(key); }
    size_t operator()(const std::unique_ptr<PendingTensor>& tensor) const {
      return TensorKeyHash()(tensor->request().key());
    }
  };
  struct Equal {
    using is_transparent = void;
    static TensorKeyView Key(const TensorKeyView& key) { return key; }
    static TensorKeyView Key(const std::unique_ptr<PendingTensor>& tensor) { return tensor->request().key(); }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Key(a) == Key(b);
    }
  };

  std::unique_ptr<PendingTensor> Fresh();
  PendingTensor* Insert(std::unique_ptr<PendingTensor> tensor);

  absl::flat_hash_set<std::unique_ptr<PendingTensor>, Hash, Equal> tensors_;
  absl::flat_hash_map<CacheId, PendingTensor*> by_id_;
  std::vector<std::unique_ptr<PendingTensor>> spare_;
  uint64_t next_sequence_ = 0;
};

// Returns the message in `pending` that `receive`, a receive in the order of arrival, takes. Each sender for which
// `may_send` is true offers its message with the lowest number, and the receive takes the offered message that came
// first. Returns nullptr if none is offered.
PendingTensor* OldestMessageFor(const TensorRequest& receive, const PendingTable& pending,
                                const std::function<bool(RankId)>& may_send);

// A tensor that every rank has submitted, and the verdict on whether it may be carried out.
struct ConcludedTensor {
  std::unique_ptr<PendingTensor> tensor;
  std::vector<RankId> joined;  // the ranks that take no part
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
  absl::Status verdict;  // OK: it can be carried out
};

// The concluded tensors of a group, held until its other tensors are concluded.
struct HeldGroup {
  std::vector<ConcludedTensor> tensors;  // in the order in which they concluded; at least one
  int size = 0;                          // how many tensors the group has
  absl::Time since;
  uint64_t sequence = 0;

  // Returns OK if all tensors may be carried out; otherwise an error that names the tensor at fault.
  absl::Status Verdict() const;
};

// Groups of tensors. Either all tensors of a group run, or none of them. A group is identified by its process set and
// its name.
//
// Thread-compatible.
class GroupTable {
 public:
  GroupTable() = default;
  GroupTable(GroupTable&&) = default;

  void Hold(ConcludedTensor tensor, absl::Time now);

  // Removes and returns the groups whose tensors are all concluded, in the order in which the groups began.
  std::vector<HeldGroup> TakeComplete();

  // These functions remove and return one group, or all groups of a process set. The result is empty if none of these
  // groups has a held tensor.
  std::vector<HeldGroup> Take(TensorKeyView group);
  std::vector<HeldGroup> TakeAllOf(ProcessSetId set);

  // Must be called when the cached response with this id was evicted.
  void SpellOut(CacheId id);

  // Returns the group in which a tensor with this name is held, or nullptr if no group holds such a tensor.
  const HeldGroup* FindByTensor(TensorKeyView tensor) const;

  const TensorKeyMap<HeldGroup>& held() const { return groups_; }
  bool empty() const { return groups_.empty(); }

 private:
  template <typename Predicate>
  std::vector<HeldGroup> TakeIf(Predicate predicate);

  TensorKeyMap<HeldGroup> groups_;
  uint64_t next_sequence_ = 0;
};

// Returns the group of a request.
// REQUIRES: the request is in a group.
inline TensorKeyView GroupOf(const TensorRequest& request) { return {request.process_set, request.group}; }

// A tensor for which some ranks wait or, if the name is empty, the end of the job.
struct Waiting {
  TensorKey tensor;
  std::string description;  // "tensor 'x' (allreduce of float32 [3])"
  absl::Time since;         // when its first submission arrived
  WaitLimits limits;
  std::vector<RankId> present;  // ascending
  std::vector<RankId> missing;  // ascending; without those that have joined
};

// Lists the waiting tensors in the negotiator's tables, and the ranks for which they wait.
//
// A WaitingView owns nothing; the tables must outlive it. Thread-compatible.
class WaitingView {
 public:
  struct Tables {
    const PendingTable& pending;
    const JoinTable& joins;
    const GroupTable& groups;
    const JobRanks& ranks;
  };
  // Whether some of the waiting tensors may have limits of their own.
  enum class OwnLimits : uint8_t { kNone, kPossible };

  // `limits` apply to tensors without limits of their own.
  WaitingView(const Tables& tables, const WaitLimits& limits, OwnLimits own_limits)
      : tables_(tables), limits_(limits), own_limits_(own_limits) {}

  bool empty() const {
    return tables_.pending.empty() && tables_.joins.empty() && tables_.groups.empty() && !tables_.ranks.some_departed();
  }

  // Returns everything that waits, oldest wait first.
  std::vector<Waiting> All() const;

  // Returns everything for which a warning or the deadline is due, oldest wait first.
  std::vector<Waiting> Overdue(absl::Time now) const;

  // Returns the shortest limit of the waiting tensors and of the job; infinity if nothing waits.
  absl::Duration ShortestLimit() const;

  // Returns the names of at most `limit` tensors that `rank` has submitted and that wait for other ranks.
  std::vector<std::string> SubmittedBy(RankId rank, size_t limit) const;

  // Returns, for example, "rank 1 (host h, pid 42)".
  std::string Describe(RankId rank) const { return tables_.ranks.Describe(rank); }

 private:
  // Returns whether a wait that began at `since` and has these limits belongs in the result.
  using Filter = absl::FunctionRef<bool(absl::Time since, const WaitLimits& limits)>;

  std::vector<Waiting> Select(Filter wanted) const;
  Waiting WaitingOf(const PendingTensor& tensor) const;
  Waiting WaitingOf(const SetJoins& joins) const;
  Waiting WaitingOf(const HeldGroup& group) const;
  Waiting WaitingForDepartures() const;
  WaitLimits LimitsOf(const TensorRequest& request) const { return request.limits.value_or(limits_); }

  const Tables tables_;
  const WaitLimits limits_;
  const OwnLimits own_limits_;
};

// Looks for tensors that some ranks submitted long ago and others have not submitted. Reports which ranks are late,
// which tensors they have submitted instead, and what they did last. Each tensor may have its own limits (WaitLimits).
//
// A pure state machine. Thread-compatible.
class StallInspector {
 public:
  struct Options {
    // Returns, for example, "did last, 12.1 s ago: started allreduce 'x'". Returns an empty string if nothing is known
    // of the rank. May be unset.
    std::function<std::string(RankId)> last_activity;
  };

  explicit StallInspector(Options options) : options_(std::move(options)) {}

  struct Finding {
    TensorKey tensor;  // for Negotiator::Fail; with an empty name: ranks wait for others to shut down
    std::string text;  // names the tensor, its age, and the ranks that are late
    enum class Verdict { kWarn, kFail } verdict;
  };

  // Returns the waits that have reached a limit since the last call.
  std::vector<Finding> Inspect(const WaitingView& view, absl::Time now);

  // Returns when to inspect next. Each finding is late by at most an eighth of its limit.
  absl::Time NextInspection(const WaitingView& view, absl::Time now) const;

 private:
  std::string DescribeLateRank(const WaitingView& view, RankId rank) const;
  std::string DescribeStall(const WaitingView& view, const Waiting& waiting, absl::Time now) const;

  const Options options_;
  std::map<TensorKey, absl::Time> warned_;  // by reported tensor: since when it waits
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_PENDING_TENSORS_H_
