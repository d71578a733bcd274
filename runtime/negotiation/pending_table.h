#ifndef RONDA_RUNTIME_NEGOTIATION_PENDING_TABLE_H_
#define RONDA_RUNTIME_NEGOTIATION_PENDING_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "runtime/base/group.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/position_set.h"

namespace ronda {

// A tensor that some of its ranks have submitted. As long as all of them have named the same entry of the response
// cache it is that entry and nothing is copied.
//
// Invariant: `cached` is the response of the id `cached_as`, or null when that is 0.
struct PendingTensor {
  const TensorRequest& request() const { return cached ? cached->request : spelled; }

  // From now on the response will be spelled out, not named by its id.
  void SpellOut();

  std::shared_ptr<const Response> cached;
  CacheId cached_as = 0;
  TensorRequest spelled;            // the first submission; meaningless while `cached`
  std::vector<int64_t> first_dims;  // by position, where they are gathered; meaningless while `cached`

  std::shared_ptr<const Group> participants;  // whom it takes
  PositionSet submitted;                      // of `participants`
  int missing = 0;                            // participants that have neither submitted it nor joined
  RankId first_rank = 0;                      // the first to submit it
  absl::Time since;                           // when that was
  uint64_t sequence = 0;                      // the order in which tensors became pending
  std::string mismatch;                       // empty while the submissions agree
};

// The tensors that wait for ranks, by name and by id. Its entries stay where they are until they are extracted; the
// memory of entries is used again, so that a job that repeats itself allocates nothing.
//
// Thread-compatible.
class PendingTable {
 public:
  PendingTable() = default;
  PendingTable(PendingTable&&) = default;

  // nullptr if there is none.
  PendingTensor* Find(TensorKeyView key) const;
  // The tensor that is `id` so far; nullptr if there is none.
  PendingTensor* FindById(CacheId id) const;

  // REQUIRES: no tensor of this name is pending.
  PendingTensor* Start(const TensorRequest& request);
  PendingTensor* Start(CacheId id, std::shared_ptr<const Response> response);

  // The tensor differs from the response of its id, or the id is no more.
  void SpellOut(PendingTensor* tensor);

  // Takes it out of the table.
  std::unique_ptr<PendingTensor> Extract(PendingTensor* tensor);

  // Takes back an extracted tensor that is not needed any more.
  void Recycle(std::unique_ptr<PendingTensor> tensor);

  // Forgets all that waits.
  void Clear();

  // Those for which `wanted` is true, in the order in which they became pending.
  std::vector<PendingTensor*> Select(const std::function<bool(const PendingTensor&)>& wanted) const;

  // In no particular order.
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

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_PENDING_TABLE_H_
