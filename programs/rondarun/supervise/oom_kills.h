// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_OOM_KILLS_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_OOM_KILLS_H_

#include <cstdint>
#include <string>

namespace ronda {

// How many processes the kernel has killed for lack of memory.
struct OomKills {
  int64_t of_host = 0;   // on this host, in any container
  int64_t of_group = 0;  // in this process' control group and those below it, which contain the ranks that it starts

  OomKills operator-(const OomKills& before) const { return {of_host - before.of_host, of_group - before.of_group}; }
  bool operator==(const OomKills&) const = default;
};

// Returns the number of kills on the host since it was booted, and in the control group since it was created. A count
// is 0 if the kernel does not provide it. `root` is the folder that contains /proc and /sys.
OomKills CountOomKills(const std::string& root = "");

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_OOM_KILLS_H_
