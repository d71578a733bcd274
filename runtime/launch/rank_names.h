#ifndef RONDA_RUNTIME_LAUNCH_RANK_NAMES_H_
#define RONDA_RUNTIME_LAUNCH_RANK_NAMES_H_

#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace ronda {

// "rank 2", "ranks 0, 1 and 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
// REQUIRES: `ranks` is not empty.
std::string NameRanks(const std::vector<RankId>& ranks);

// "host beta", "hosts alpha and beta", and so on.
// REQUIRES: `hosts` is not empty.
std::string NameHosts(const std::vector<std::string>& hosts);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_RANK_NAMES_H_
