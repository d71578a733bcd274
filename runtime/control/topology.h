#ifndef RONDA_RUNTIME_CONTROL_TOPOLOGY_H_
#define RONDA_RUNTIME_CONTROL_TOPOLOGY_H_

#include <string>

#include "runtime/base/types.h"

namespace ronda {

// Where a rank stands in the job. Ranks on one host form the local group; ranks with the same local rank on different
// hosts form the cross group.
struct Topology {
  RankId rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  std::string hostname = "localhost";
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TOPOLOGY_H_
