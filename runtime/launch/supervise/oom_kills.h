#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_OOM_KILLS_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_OOM_KILLS_H_

#include <cstdint>
#include <string>

namespace ronda {

// Processes that the kernel has killed for lack of memory.
struct OomKills {
  int64_t of_host = 0;   // on this host, in any container
  int64_t of_group = 0;  // in the control group of this process and those below it, as the ranks are that it starts

  OomKills operator-(const OomKills& before) const { return {of_host - before.of_host, of_group - before.of_group}; }
  bool operator==(const OomKills&) const = default;
};

// Those since the start of the host, and since that of the group; 0 where the kernel does not say. `root` is the folder
// of /proc and /sys.
OomKills CountOomKills(const std::string& root = "");

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_OOM_KILLS_H_
