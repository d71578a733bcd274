// SPDX-License-Identifier: Apache-2.0

// The reason for which a job failed, and the launcher's text for it.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_VERDICT_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_VERDICT_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
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

// "exited with code 3", "was killed by signal 9 (SIGKILL)", or "was lost: ...". The text for SIGKILL names the
// lack of memory if `end` has oom_kills. The text names it as the cause if the kernel has killed a process in the
// rank's control group.
std::string DescribeEnd(const RankEnd& end);

// "SIGTERM"; "signal 64" if it has no name.
std::string SignalName(int signo);

// Returns the rank whose failure made the job fail, or null if no rank failed by itself.
//
// It is the first rank to fail. If several failures were noticed together, a death by a signal goes before an exit
// code, and a lower rank before a higher one. The last error of a rank may be Ronda's report that another rank failed
// ("... rank 2 (host a, pid 71) ..."). If that other rank has failed, the result is the other rank. The report may also
// say that the other rank has shut down ("rank 2 (host a, pid 71) has shut down ..."). Then the last error of the other
// rank blames no rank, since its shutdown came first.
const RankEnd* FirstFailure(const std::vector<RankEnd>& ends);

// The numbers by which texts name processes: their ranks, or their numbers as members of an elastic job.
enum class Naming { kRank, kMember };

// Returns the text of DescribeEnd, followed by the last error: "exited with code 3; last error: \"disk on fire\"". A
// member's last error is left out if it is a report about ranks, which may be of an earlier epoch.
std::string DescribeEndAndError(const RankEnd& end, Naming naming);

// Returns the launcher's last line for `failure`, without newline: the rank or member, its pid and host, and the text
// of DescribeEndAndError.
std::string DescribeFailure(const RankEnd& failure, Naming naming = Naming::kRank);

// DescribeFailure(failure) in a job whose ranks have these `ends`. Also names a rank that ended with exit code 0, if
// the failed rank blames it.
std::string DescribeFailure(const RankEnd& failure, const std::vector<RankEnd>& ends);

// Returns the launcher's exit code for `failure`: the rank's exit code, 128 + signal, or 1 for a rank that was lost.
int ExitCodeOf(const RankEnd& failure);

// The launcher's exit code for a process that could not be started. A shell would return the same code.
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

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_VERDICT_H_
