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

// Keeps the responses on which the ranks have agreed, by tensor. So a rank that submits a tensor again reports only an
// id.
//
// Every rank applies the same response lists in the same order. The ids, the contents and the evictions depend only on
// these lists, so the caches of all ranks are equal without being compared. The least recently executed entry is
// evicted first.
//
// Two rules make it safe to evict an entry. First, if a rank has reported an id, and a list evicts the id without
// answering the report, the rank repeats the request in full. Second, if the coordinator ignores an evicted id in a
// report, it records the id and the rank. The coordinator accepts a repeated request only if it has recorded the id for
// this rank.
//
// The cache does not keep joins and changes of process sets. When a process set is removed, the entries of this set are
// evicted.
//
// A pure state machine. Thread-compatible.
class ResponseCache {
 public:
  explicit ResponseCache(size_t capacity) : capacity_(capacity) {}

  // Returns the id by which `rank` may report `request`: the cached response with this id answers exactly this request.
  // `members` are the members of the request's process set, one of which is `rank`.
  std::optional<CacheId> Find(const TensorRequest& request, RankId rank, const Group& members) const;

  // Returns the response with this id, or nullptr if the cache has no such entry.
  std::shared_ptr<const Response> Get(CacheId id) const;

  // Applies a response list: marks its cached executions as used, and adds its new executions to the cache. Returns the
  // entries that were evicted for this. Every rank must apply the same lists.
  // Errors: INVALID_ARGUMENT if the list contains an id that is not in the cache. After an error the cache is
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

// Returns the request of `rank` that `response` answers. Takes ignored dimensions (see Response) from the response.
TensorRequest RequestOf(const Response& response, RankId rank, const Group& members);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_RESPONSE_CACHE_H_
