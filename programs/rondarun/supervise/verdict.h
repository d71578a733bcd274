// SPDX-License-Identifier: Apache-2.0

// Finds out why a job failed, and words the launcher's message about it.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_VERDICT_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_VERDICT_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "programs/rondarun/supervise/oom_kills.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"

namespace ronda {

// How a rank ended.
struct RankEnd {
  enum class Cause { kItself, kLauncher };  // kLauncher: the launcher had sent a signal to the rank

  RankId rank = 0;  // -1: unknown
  pid_t pid = 0;    // 0: unknown
  std::string host;
  int exit_code = 0;  // 0 if it was killed by a signal
  int signal = 0;     // 0 if it exited
  int round = 0;      // the same for ranks whose ends were noticed together, and lower for earlier ends
  Cause cause = Cause::kItself;
  std::string lost;        // the reason why its end is unknown; empty: its end is known
  std::string last_error;  // left by the rank itself (ErrorFile), or else from Console::last_error()
  OomKills oom_kills;      // on its host, while the job ran; none: they are not known

  bool failed() const { return exit_code != 0 || signal != 0 || !lost.empty(); }
};

// Returns "exited with code 3", "was killed by signal 9 (SIGKILL)", or "was lost: ...". For SIGKILL, the text mentions
// lack of memory if `end` has oom_kills. If the kernel has killed a process in the rank's control group, the text
// states that lack of memory is the cause.
std::string DescribeEnd(const RankEnd& end);

// Returns the name of a signal, such as "SIGTERM", or a text such as "signal 64" if the signal has no name.
std::string SignalName(int signo);

// Returns the rank whose failure caused the job to fail, or null if no rank failed by itself.
//
// This is the first rank that failed, unless that rank blames another one. Among failures that were noticed together,
// death by a signal comes before an exit code, and a lower rank before a higher one. A rank's last error may be Ronda's
// report that another rank has failed ("... rank 2 (host a, pid 71) ..."). If that rank did fail, it is the result. A
// report may also say that another rank has shut down ("rank 2 (host a, pid 71) has shut down ..."). The rank that has
// shut down then blames no other rank, because it shut down before its last error.
const RankEnd* FirstFailure(const std::vector<RankEnd>& ends);

// How texts refer to a process: by its rank, or by its number as a member of an elastic job.
enum class Naming { kRank, kMember };

// Returns the text of DescribeEnd, followed by the last error: "exited with code 3; last error: \"disk on fire\"". For
// a member, omits the last error if it is a report about ranks, because their numbers may belong to an earlier epoch.
std::string DescribeEndAndError(const RankEnd& end, Naming naming);

// Returns the launcher's last line about `failure`, without a newline: the rank or member, its pid and host, and the
// text of DescribeEndAndError.
std::string DescribeFailure(const RankEnd& failure, Naming naming = Naming::kRank);

// Like DescribeFailure(failure), for a job whose ranks ended as in `ends`. If the failed rank blames a rank that ended
// with exit code 0, the line also names that rank.
std::string DescribeFailure(const RankEnd& failure, const std::vector<RankEnd>& ends);

// Returns the launcher's exit code for `failure`: the exit code of the rank, 128 + signal, or 1 for a lost rank.
int ExitCodeOf(const RankEnd& failure);

// Returns the launcher's exit code for a process that could not be started. It is the one that a shell would return.
int ExitCodeOf(const absl::Status& start_error);

// A rank that may not have started yet, and the host where it must run.
struct AwaitedRank {
  RankId rank = 0;
  std::string host;

  bool operator==(const AwaitedRank&) const = default;
};

// Returns a text such as "ranks 2, 3 (host beta) were not started within 30s: ...", with remedies. REQUIRES: `ranks` is
// not empty.
std::string DescribeLateStart(const std::vector<AwaitedRank>& ranks, absl::Duration timeout);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_VERDICT_H_
