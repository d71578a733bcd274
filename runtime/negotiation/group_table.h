#ifndef RONDA_RUNTIME_NEGOTIATION_GROUP_TABLE_H_
#define RONDA_RUNTIME_NEGOTIATION_GROUP_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/pending_table.h"

namespace ronda {

// A tensor that every rank has submitted, and what is to become of it.
struct ConcludedTensor {
  std::unique_ptr<PendingTensor> tensor;
  std::vector<RankId> joined;  // that take no part
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
  absl::Status verdict;  // OK: it can be carried out
};

// Tensors of one group that are held until all have concluded.
struct HeldGroup {
  std::vector<ConcludedTensor> tensors;  // in the order in which they concluded; at least one
  int size = 0;                          // how many tensors the group has
  absl::Time since;
  uint64_t sequence = 0;

  // OK if all may be carried out; otherwise names the culprit.
  absl::Status Verdict() const;
};

// Groups of tensors that run as a whole or not at all. A group is named by its process set and its name.
//
// Thread-compatible.
class GroupTable {
 public:
  GroupTable() = default;
  GroupTable(GroupTable&&) = default;

  void Hold(ConcludedTensor tensor, absl::Time now);

  // Takes out the groups of which all tensors have concluded, in the order in which they began.
  std::vector<HeldGroup> TakeComplete();

  // Takes out one group, or all groups of a process set. Empty if nothing is held.
  std::vector<HeldGroup> Take(TensorKeyView group);
  std::vector<HeldGroup> TakeAllOf(ProcessSetId set);

  // The response of this id is no more.
  void SpellOut(CacheId id);

  // The group in which a tensor of this name is held; nullptr if it is in none.
  const HeldGroup* FindByTensor(TensorKeyView tensor) const;

  const TensorKeyMap<HeldGroup>& held() const { return groups_; }
  bool empty() const { return groups_.empty(); }

 private:
  template <typename Predicate>
  std::vector<HeldGroup> TakeIf(Predicate predicate);

  TensorKeyMap<HeldGroup> groups_;
  uint64_t next_sequence_ = 0;
};

// The group that a request is in.
// REQUIRES: it is in one.
inline TensorKeyView GroupOf(const TensorRequest& request) { return {request.process_set, request.group}; }

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_GROUP_TABLE_H_
