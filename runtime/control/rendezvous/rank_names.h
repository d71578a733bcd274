#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_RANK_NAMES_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_RANK_NAMES_H_

#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace ronda {

// "rank 3", "ranks 1, 3"; of many the first, "ranks 1, 2, 3 and 40 more": enough to see the pattern.
std::string NameRanks(const std::vector<RankId>& ranks);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_RANK_NAMES_H_
