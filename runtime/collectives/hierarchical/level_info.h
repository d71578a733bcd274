#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_INFO_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_INFO_H_

#include "runtime/collectives/communicator.h"

namespace ronda {

// What a call of all ranks of the job is on one of the levels: one of all ranks there, without a vote of its own.
//
// Who waits for a rank of another host may wait for one that is itself waiting, on its host, for the rank that is late;
// and who waits for what that brings back waits for both. So each step has a little more patience than the one before
// it: the first to give up is a rank that waits for the late one itself, and names it.
inline CallInfo LevelInfo(const CallInfo& info, int steps_before) {
  constexpr double kPatience = 0.05;
  const double factor = 1 + kPatience * steps_before;
  return {.label = info.label,
          .op = info.op,
          .limits = {.warning = info.limits.warning * factor, .deadline = info.limits.deadline * factor}};
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_LEVEL_INFO_H_
