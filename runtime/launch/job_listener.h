#ifndef RONDA_RUNTIME_LAUNCH_JOB_LISTENER_H_
#define RONDA_RUNTIME_LAUNCH_JOB_LISTENER_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/launch/stream.h"
#include "runtime/launch/verdict.h"

namespace ronda {

// Hears what becomes of a job: from its processes, and from who supervises them.
class JobListener {
 public:
  virtual ~JobListener() = default;

  virtual void OnRankStart(RankId rank, pid_t pid, const std::string& host) = 0;

  // The next bytes that `rank` printed, and that there are no more.
  virtual void OnOutput(RankId rank, Stream stream, absl::string_view bytes) = 0;
  virtual void OnOutputEnd(RankId rank, Stream stream) = 0;

  // `end.round` and `end.last_error` are not filled in.
  virtual void OnRankEnd(RankEnd end) = 0;

  // A line of a program that starts ranks (mpirun, ssh), not of a rank.
  virtual void OnHelperLine(absl::string_view helper, absl::string_view line) = 0;

  // The job cannot go on, and no rank is to blame: `what` happened, and is worth this exit code of the launcher.
  virtual void OnJobFailure(absl::string_view what, int exit_code) = 0;

  // How many bytes of a rank's `stream` still wait to be taken from here: where they are many, no more are to come for
  // now.
  virtual size_t Pending(Stream stream) const = 0;

  // For the user: always, or for who wants to know everything.
  virtual void Say(absl::string_view text) = 0;
  virtual void Explain(absl::string_view text) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_JOB_LISTENER_H_
