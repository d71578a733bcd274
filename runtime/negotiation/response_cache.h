// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NEGOTIATION_RESPONSE_CACHE_H_
#define RONDA_RUNTIME_NEGOTIATION_RESPONSE_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/base/group.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// Keeps the agreed responses of tensors. So when a rank submits a tensor again, it reports only an id.
//
// Every rank applies the same response lists in the same order. Ids, contents and evictions depend only on this
// sequence of lists, so the caches of all ranks are equal although the ranks never compare them. The least recently
// executed entry is evicted first.
//
// Two rules make eviction safe. If a rank has reported an id, and a list evicts the id without answering the report,
// the rank repeats the request in full. The coordinator records each evicted id that it has ignored in a report, and
// the rank of the report. It accepts a repeated request only for such an id from this rank.
//
// The cache does not keep joins and changes of process sets. When a process set is removed, its entries are evicted.
//
// ResponseCache is a pure state machine. Thread-compatible.
class ResponseCache {
 public:
  explicit ResponseCache(size_t capacity) : capacity_(capacity) {}

  // Returns the id by which `rank` may report `request`, because the cached response answers exactly this request.
  // `members` are the members of the request's process set, and `rank` is one of them.
  std::optional<CacheId> Find(const TensorRequest& request, RankId rank, const Group& members) const;

  // Returns the response with this id; nullptr if the cache has no such entry.
  std::shared_ptr<const Response> Get(CacheId id) const;

  // Applies a response list. Marks the list's cached executions as used, adds the new executions to the cache, and
  // returns the entries that were evicted for them. Every rank must apply the same lists.
  // Errors: INVALID_ARGUMENT if the list contains an id that is not in the cache. After this error the cache is
  // unchanged.
  struct Evicted {
    CacheId id;
    std::shared_ptr<const Response> response;
  };
  absl::StatusOr<std::vector<Evicted>> Apply(const ResponseList& list);

  size_t size() const { return entries_.size(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Entry {
    std::shared_ptr<const Response> response;
    std::list<CacheId>::iterator age;  // its position in by_age_
  };

  absl::Status CheckIds(const ResponseList& list) const;
  void Store(const Execution& execution, std::vector<Evicted>* evicted);
  void Insert(const Response& response, std::vector<Evicted>* evicted);
  void EvictAllOf(ProcessSetId set, std::vector<Evicted>* evicted);
  void Evict(CacheId id, std::vector<Evicted>* evicted);

  const size_t capacity_;
  CacheId next_id_ = 1;
  absl::flat_hash_map<CacheId, Entry> entries_;
  TensorKeyMap<CacheId> by_name_;
  std::list<CacheId> by_age_;  // least recently executed first
};

// Returns the request of `rank` that `response` answers. Dimensions that are ignored (see Response) are taken from the
// response.
TensorRequest RequestOf(const Response& response, RankId rank, const Group& members);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_RESPONSE_CACHE_H_
