// SPDX-License-Identifier: Apache-2.0

// The tables that say which ranks take part in an operation: the ranks that have shut down, the process sets, and the
// ranks that have joined. This file also has functions that check a request against these tables.
#ifndef RONDA_RUNTIME_NEGOTIATION_PARTICIPANTS_H_
#define RONDA_RUNTIME_NEGOTIATION_PARTICIPANTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// The ranks of a job: the identity of each rank, and which ranks have shut down.
//
// Thread-compatible.
class JobRanks {
 public:
  explicit JobRanks(int size) : identities_(size), drained_(size, false), departed_(size, false) {}

  void Introduce(RankId rank, std::string identity) { identities_[rank] = std::move(identity); }

  // Returns "rank 1 (host h, pid 42)", or "rank 1" if the rank has not yet reported its host and pid.
  std::string Describe(RankId rank) const {
    if (identities_[rank].empty()) return absl::StrCat("rank ", rank);
    return absl::StrCat("rank ", rank, " (", identities_[rank], ")");
  }

  // Must be called when the rank will submit nothing more.
  void Drain(RankId rank) {
    if (!Submits(rank)) return;
    drained_[rank] = true;
    departures_.push_back(rank);
  }
  // Must be called when the rank will submit nothing more and has nothing in flight.
  void ShutDown(RankId rank, absl::Time now) {
    Drain(rank);
    if (departed_count_++ == 0) first_departure_ = now;
    departed_[rank] = true;
  }

  int size() const { return static_cast<int>(departed_.size()); }
  bool Has(RankId rank) const { return rank >= 0 && rank < size(); }
  bool Submits(RankId rank) const { return !drained_[rank]; }
  bool HasShutDown(RankId rank) const { return departed_[rank]; }
  // Returns the ranks that will submit nothing more, in the order in which they reported this.
  const std::vector<RankId>& departures() const { return departures_; }
  bool all_departed() const { return departed_count_ == size(); }
  bool some_departed() const { return departed_count_ > 0 && !all_departed(); }

  // REQUIRES: a rank has shut down.
  absl::Time first_departure() const { return first_departure_; }

 private:
  std::vector<std::string> identities_;  // by rank; empty until it introduces itself
  std::vector<bool> drained_;            // by rank
  std::vector<bool> departed_;           // by rank
  std::vector<RankId> departures_;
  int departed_count_ = 0;
  absl::Time first_departure_;
};

// The process sets of a job. The table depends only on the sequence of responses, so all ranks have equal tables
// without comparing them. Process sets get the ids 1, 2, ... in the order in which they are added, and no id is used
// twice.
//
// Thread-compatible. Callers may keep a Group even after its process set was removed.
class ProcessSetTable {
 public:
  explicit ProcessSetTable(int world_size);

  // Returns the members of a set, or nullptr if no set has this id or the set was removed.
  std::shared_ptr<const Group> Find(ProcessSetId id) const { return id < sets_.size() ? sets_[id] : nullptr; }

  // Returns whether the members alone created the set. If so, the members alone also remove it.
  bool CreatedByMembers(ProcessSetId id) const { return id < by_members_.size() && by_members_[id]; }

  // Returns whether a set with this id exists or has existed.
  bool Known(ProcessSetId id) const { return id < sets_.size(); }

  // The id that the next set will get.
  ProcessSetId next_id() const { return static_cast<ProcessSetId>(sets_.size()); }

  // If the response adds or removes a set, makes this change in the table. Errors: INVALID_ARGUMENT if this response
  // cannot come next, for example because an id is not next_id(), a member is not a rank of the job, or a set to remove
  // does not exist.
  absl::Status Apply(const Response& response);

 private:
  absl::Status Add(const TensorRequest& request);
  absl::Status Remove(ProcessSetId id);

  std::vector<std::shared_ptr<const Group>> sets_;  // by id; nullptr: removed
  std::vector<bool> by_members_;                    // by id
};

// A set of positions in a Group, with one bit per position and a count.
//
// Thread-compatible.
class PositionSet {
 public:
  // Empties the set, and makes room for the positions 0 to `size` - 1. Reuses the set's memory.
  void Reset(int size) {
    words_.assign((static_cast<size_t>(size) + 63) / 64, 0);
    count_ = 0;
  }

  bool Contains(int position) const { return (words_[position / 64] >> (position % 64) & 1) != 0; }

  // Inserts a position. Returns false if the position was already in the set.
  bool Insert(int position) {
    uint64_t& word = words_[position / 64];
    const uint64_t bit = uint64_t{1} << (position % 64);
    if ((word & bit) != 0) return false;
    word |= bit;
    ++count_;
    return true;
  }

  int count() const { return count_; }

 private:
  std::vector<uint64_t> words_;
  int count_ = 0;
};

// The members of one process set that have joined; at least one has.
struct SetJoins {
  TensorRequest request;                 // of the first to join
  std::shared_ptr<const Group> members;  // of the process set
  PositionSet joined;                    // of `members`
  RankId first = 0;
  RankId last = 0;
  absl::Time since;      // the last event in the process set: a join may rightly wait for long
  std::string mismatch;  // empty while the joins agree

  bool complete() const { return joined.count() == members->size(); }
  bool Contains(RankId rank) const {
    const std::optional<int> position = members->PositionOf(rank);
    return position && joined.Contains(*position);
  }
  // Returns the ranks that have joined, in ascending order.
  std::vector<RankId> ranks() const;
};

// The ranks that have joined, by process set.
//
// Thread-compatible.
class JoinTable {
 public:
  // Returns the joins in a process set, or nullptr if no rank of the set has joined.
  SetJoins* Find(ProcessSetId set) {
    const auto it = sets_.find(set);
    return it == sets_.end() ? nullptr : &it->second;
  }
  const SetJoins* Find(ProcessSetId set) const { return const_cast<JoinTable*>(this)->Find(set); }

  bool Contains(ProcessSetId set, RankId rank) const {
    if (sets_.empty()) return false;
    const SetJoins* joins = Find(set);
    return joins != nullptr && joins->Contains(rank);
  }

  // Records that `rank` has joined. REQUIRES: `rank` is in `members` and has not joined.
  SetJoins* Add(RankId rank, const TensorRequest& request, const std::shared_ptr<const Group>& members, absl::Time now);

  // Must be called when the join in the set is complete, so that all members take part again.
  void Erase(ProcessSetId set) { sets_.erase(set); }

  // Returns the process sets in which a rank has joined, in ascending order.
  std::vector<ProcessSetId> sets() const;

  bool empty() const { return sets_.empty(); }

 private:
  absl::flat_hash_map<ProcessSetId, SetJoins> sets_;
};

// Returns the ranks that carry out `request` if no rank has joined. `members` is the process set of the request.
std::shared_ptr<const Group> ParticipantsOf(const TensorRequest& request, std::shared_ptr<const Group> members);

// Checks that a correct rank can have sent `request`, whose process set exists. The codec has already checked
// everything that needs no knowledge of the job. Errors: INVALID_ARGUMENT, naming the rank.
absl::Status CheckRequest(RankId rank, const TensorRequest& request, const ProcessSetTable& process_sets,
                          const JobRanks& ranks);

// Checks whether a tensor on which all ranks agree can be carried out without the ranks in `joined`. If the operation
// changes process sets, also checks whether the change is possible.
// Errors: FAILED_PRECONDITION, naming the rank that joined, or the process set.
absl::Status CheckFeasible(const TensorRequest& request, const std::vector<RankId>& joined,
                           const ProcessSetTable& process_sets, const JobRanks& ranks);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_PARTICIPANTS_H_
