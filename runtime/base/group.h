// SPDX-License-Identifier: Apache-2.0

// Groups of ranks, and the encoding of ranks and cache ids in messages. The encoding replaces each run of consecutive
// numbers with a pair (first, length).
#ifndef RONDA_RUNTIME_BASE_GROUP_H_
#define RONDA_RUNTIME_BASE_GROUP_H_

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/types.h"

namespace ronda {

// An ascending list of ranks of a job. A rank's position in the group is its index in this list.
//
// Immutable, thus thread-safe.
class Group {
 public:
  // REQUIRES: `ranks` is ascending, without duplicates.
  explicit Group(std::vector<RankId> ranks) : ranks_(std::move(ranks)) {}

  // Returns the group of all ranks of a job, in which each rank's position equals its number.
  static Group All(int size) {
    std::vector<RankId> ranks(size);
    std::iota(ranks.begin(), ranks.end(), 0);
    return Group(std::move(ranks));
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  RankId operator[](int position) const { return ranks_[position]; }
  const std::vector<RankId>& ranks() const { return ranks_; }

  // Returns the position of `rank`; nullopt if `rank` is not in the group.
  std::optional<int> PositionOf(RankId rank) const {
    // In a group of all ranks, the first check succeeds without a search. This matters in large jobs, where the
    // negotiation calls PositionOf() once per tensor and rank.
    if (rank >= 0 && rank < size() && ranks_[rank] == rank) return rank;
    const auto it = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    if (it == ranks_.end() || *it != rank) return std::nullopt;
    return static_cast<int>(it - ranks_.begin());
  }
  bool Contains(RankId rank) const { return PositionOf(rank).has_value(); }

  // Returns this group without the ranks in `others`, which must be ascending.
  Group Without(const std::vector<RankId>& others) const {
    std::vector<RankId> rest;
    std::set_difference(ranks_.begin(), ranks_.end(), others.begin(), others.end(), std::back_inserter(rest));
    return Group(std::move(rest));
  }

  friend bool operator==(const Group&, const Group&) = default;

 private:
  std::vector<RankId> ranks_;
};

// Encodes a sequence of numbers as runs, for example 7, 8, 9, 3 as 7, 3, 3, 1. The sequence may be in any order.
template <typename T>
class RunWriter {
 public:
  void Add(T value) {
    if (length_ > 0 && value == first_ + length_) {
      ++length_;
      return;
    }
    Flush();
    first_ = value;
    length_ = 1;
  }

  std::vector<T> Take() {
    Flush();
    return std::move(runs_);
  }

 private:
  void Flush() {
    if (length_ == 0) return;
    runs_.push_back(first_);
    runs_.push_back(length_);
  }

  std::vector<T> runs_;
  T first_ = 0;
  T length_ = 0;
};

template <typename T>
std::vector<T> ToRuns(const std::vector<T>& values) {
  RunWriter<T> writer;
  for (T value : values) writer.Add(value);
  return writer.Take();
}

// Decodes the result of ToRuns(). Returns nullopt if `runs` has an odd length, an empty run, or a number that overflows
// or is negative. Also returns nullopt for more than `limit` numbers: otherwise a few corrupt bytes could exhaust the
// memory.
template <typename T, typename Runs>
std::optional<std::vector<T>> FromRuns(const Runs& runs, size_t limit) {
  std::vector<T> values;
  if (runs.size() % 2 != 0) return std::nullopt;
  for (int i = 0; i < static_cast<int>(runs.size()); i += 2) {
    const T first = runs[i], length = runs[i + 1];
    if (first < 0 || length <= 0 || static_cast<size_t>(length) > limit - values.size()) return std::nullopt;
    if (first > std::numeric_limits<T>::max() - length) return std::nullopt;
    for (T value = first; value < first + length; ++value) values.push_back(value);
  }
  return values;
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_GROUP_H_
