// Who relays for whom.
#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_TREE_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_TREE_H_

#include <algorithm>
#include <vector>

#include "runtime/base/types.h"

namespace ronda {

// Most children of a rank: up to 65 ranks are rank 0 and its children.
inline constexpr int kControlFanOut = 64;

// Ranks form a tree in which rank r's parent is (r - 1) / fan_out. So parents have lower numbers than their children,
// and the children of a rank are consecutive.
struct ControlTree {
  int size = 1;  // of the job
  int fan_out = kControlFanOut;

  // REQUIRES: `rank` is not 0.
  RankId Parent(RankId rank) const { return (rank - 1) / fan_out; }

  std::vector<RankId> Children(RankId rank) const {
    std::vector<RankId> children;
    const RankId first = rank * fan_out + 1;
    for (RankId child = first; child < std::min(first + fan_out, size); ++child) children.push_back(child);
    return children;
  }

  // Whether `rank` is `top`, or reaches rank 0 through it.
  bool IsWithin(RankId rank, RankId top) const {
    while (rank > top) rank = Parent(rank);
    return rank == top;
  }
};

inline RankId ControlParent(RankId rank) { return ControlTree{}.Parent(rank); }
inline bool HasControlChildren(RankId rank, int size) { return rank * kControlFanOut + 1 < size; }

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_TREE_H_
