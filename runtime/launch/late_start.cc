#include "runtime/launch/late_start.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/launch/rank_names.h"

namespace ronda {

std::string DescribeLateStart(const std::vector<AwaitedRank>& ranks, absl::Duration timeout) {
  std::vector<RankId> numbers;
  std::vector<std::string> hosts;
  for (const AwaitedRank& awaited : ranks) {
    numbers.push_back(awaited.rank);
    if (std::find(hosts.begin(), hosts.end(), awaited.host) == hosts.end()) hosts.push_back(awaited.host);
  }
  std::sort(numbers.begin(), numbers.end());
  return absl::StrCat(
      NameRanks(numbers), " (", NameHosts(hosts), ") ", ranks.size() == 1 ? "was" : "were", " not started within ",
      absl::FormatDuration(timeout),
      ": rondarun --check with the same hosts and --network-interfaces shows whether they, and this machine, reach "
      "each other; if they are only slow, give them more time with --start-timeout");
}

}  // namespace ronda
