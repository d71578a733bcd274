// Why a job failed, and how the launcher says it.
#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_VERDICT_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_VERDICT_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"

namespace ronda {

// How a rank ended.
struct RankEnd {
  // The cause of its end.
  enum class Cause { kItself, kLauncher };  // kLauncher: the launcher had sent it a signal before

  RankId rank = 0;  // -1: unknown
  pid_t pid = 0;    // 0: unknown
  std::string host;
  int exit_code = 0;  // 0 if it was killed by a signal
  int signal = 0;     // 0 if it exited
  int round = 0;      // ranks whose ends were noticed together have the same; earlier ones have less
  Cause cause = Cause::kItself;
  std::string lost;        // not empty: its end is unknown, for this reason
  std::string last_error;  // its last line on stderr that is not blank
  int64_t oom_kills = 0;   // processes that its host has killed for lack of memory while the job ran

  bool failed() const { return exit_code != 0 || signal != 0 || !lost.empty(); }
};

// The processes that this host has killed for lack of memory since it was started, in any container.
int64_t OomKills();

// "exited with code 3", "was killed by signal 9 (SIGKILL)", or "was lost: ...". Of a rank that was killed by SIGKILL
// while the host lacked memory, it says so.
std::string DescribeEnd(const RankEnd& end);

// "SIGTERM"; "signal 64" for those without a name.
std::string SignalName(int signo);

// The rank whose failure made the job fail, or null if none failed by itself.
//
// It is the first to fail. Among those noticed together, death by a signal goes before an exit code, and then the lower
// rank. A rank whose last error is Ronda's report that another rank failed ("... rank 2 (host a, pid 71) ...") is a
// consequence: if that other rank failed too, it is the one. One that has shut down by such a report ("rank 2 (host a,
// pid 71) has shut down ...") blames nobody: what it says came later.
const RankEnd* FirstFailure(const std::vector<RankEnd>& ends);

// Whether ranks of a job go by their ranks, or by their numbers as members, which they keep for life.
enum class Naming { kRank, kMember };

// The same, and the last error: "exited with code 3; last error: \"disk on fire\"". A member's is not quoted if it is a
// report about ranks, which may be of an earlier epoch.
std::string DescribeEndAndError(const RankEnd& end, Naming naming);

// The launcher's last line for that failure, without newline. A member's last error is quoted unless it is a report
// about ranks: that may be of an earlier epoch.
std::string DescribeFailure(const RankEnd& failure, Naming naming = Naming::kRank);

// The same for a job whose ranks have ended so: also names a rank that the failed one blames and that ended with 0.
std::string DescribeFailure(const RankEnd& failure, const std::vector<RankEnd>& ends);

// The launcher's exit code for that failure: the rank's, 128 + signal, or 1 for a rank that was lost.
int ExitCodeOf(const RankEnd& failure);

// The launcher's exit code for a process that could not be started, as shells have it.
int ExitCodeOf(const absl::Status& start_error);

// A rank that is not known to have started, and the host where it is to run.
struct AwaitedRank {
  RankId rank = 0;
  std::string host;

  bool operator==(const AwaitedRank&) const = default;
};

// "ranks 2, 3 (host beta) were not started within 30s: ...", and remedies.
// REQUIRES: `ranks` is not empty.
std::string DescribeLateStart(const std::vector<AwaitedRank>& ranks, absl::Duration timeout);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_VERDICT_H_
