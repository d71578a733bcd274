#ifndef RONDA_RUNTIME_BASE_GROUP_H_
#define RONDA_RUNTIME_BASE_GROUP_H_

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/types.h"

namespace ronda {

// The ranks of a job that take part in something, in ascending order. A rank's place in it is its position.
//
// Immutable, thus thread-safe.
class Group {
 public:
  // REQUIRES: `ranks` is ascending, without duplicates.
  explicit Group(std::vector<RankId> ranks) : ranks_(std::move(ranks)) {}

  // All ranks of a job: rank and position are the same.
  static Group All(int size) {
    std::vector<RankId> ranks(size);
    std::iota(ranks.begin(), ranks.end(), 0);
    return Group(std::move(ranks));
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  RankId operator[](int position) const { return ranks_[position]; }
  const std::vector<RankId>& ranks() const { return ranks_; }

  // nullopt if `rank` is not in it.
  std::optional<int> PositionOf(RankId rank) const {
    // In a group of all ranks it is there; a large job's negotiation asks once a tensor and rank.
    if (rank >= 0 && rank < size() && ranks_[rank] == rank) return rank;
    const auto it = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    if (it == ranks_.end() || *it != rank) return std::nullopt;
    return static_cast<int>(it - ranks_.begin());
  }
  bool Contains(RankId rank) const { return PositionOf(rank).has_value(); }

  // This group without the ranks of `others`, which are ascending.
  Group Without(const std::vector<RankId>& others) const {
    std::vector<RankId> rest;
    std::set_difference(ranks_.begin(), ranks_.end(), others.begin(), others.end(), std::back_inserter(rest));
    return Group(std::move(rest));
  }

  friend bool operator==(const Group&, const Group&) = default;

 private:
  std::vector<RankId> ranks_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_GROUP_H_
