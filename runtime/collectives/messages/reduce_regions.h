#ifndef RONDA_RUNTIME_COLLECTIVES_MESSAGES_REDUCE_REGIONS_H_
#define RONDA_RUNTIME_COLLECTIVES_MESSAGES_REDUCE_REGIONS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ronda {

// Which granules of a reduction each member reduces: ranges, seen as one array a member.
//
// Keeps its memory from one division to the next. Thread-compatible.
class ReduceRegions {
 public:
  struct Range {
    size_t begin;
    size_t count;
  };

  // Gives every member as equal a part of `granules` as multiples of `unit` allow.
  void Divide(size_t granules, size_t unit, int members) {
    const size_t units = (granules + unit - 1) / unit;
    const size_t share = (units + static_cast<size_t>(members) - 1) / static_cast<size_t>(members) * unit;
    Reset(1);
    for (size_t member = 0; member < static_cast<size_t>(members); ++member) {
      const size_t begin = std::min(granules, member * share);
      Add({.begin = begin, .count = std::min(share, granules - begin)});
    }
  }

  // Forgets all; then every member gets `ranges_per_member` ranges, by Add, member after member.
  void Reset(size_t ranges_per_member) {
    per_member_ = ranges_per_member;
    ranges_.clear();
    ends_.clear();
  }
  void Add(Range range) {
    const bool begins_member = ranges_.size() % per_member_ == 0;
    ends_.push_back((begins_member ? 0 : ends_.back()) + range.count);
    ranges_.push_back(range);
  }

  // Granules of a member.
  size_t GranulesOf(int member) const { return ends_[End(member) - 1]; }
  // Of the member that has most.
  size_t MostGranules() const {
    size_t most = 0;
    for (size_t last = per_member_ - 1; last < ends_.size(); last += per_member_) most = std::max(most, ends_[last]);
    return most;
  }

  // Calls visit(range, offset) for the ranges that granules [begin, begin + n) of a member's consist of, with the
  // granules between `begin` and each.
  // REQUIRES: begin + n <= GranulesOf(member).
  template <typename Visit>
  void ForEachRange(int member, size_t begin, size_t n, const Visit& visit) const {
    const auto first = ends_.begin() + static_cast<ptrdiff_t>(End(member) - per_member_);
    const auto found = std::upper_bound(first, first + static_cast<ptrdiff_t>(per_member_), begin);
    size_t i = static_cast<size_t>(found - ends_.begin());
    for (size_t done = 0; done < n; ++i) {
      const size_t skip = begin + done - (ends_[i] - ranges_[i].count);
      const size_t take = std::min(n - done, ranges_[i].count - skip);
      if (take > 0) visit(Range{.begin = ranges_[i].begin + skip, .count = take}, done);
      done += take;
    }
  }

 private:
  size_t End(int member) const { return (static_cast<size_t>(member) + 1) * per_member_; }

  size_t per_member_ = 1;
  std::vector<Range> ranges_;
  std::vector<size_t> ends_;  // of each range, in its member's array
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MESSAGES_REDUCE_REGIONS_H_
