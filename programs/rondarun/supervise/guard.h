// SPDX-License-Identifier: Apache-2.0

// Cleans up after a job, however it ends. This covers its processes, those that its helpers have left behind, and its
// shared memory.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_GUARD_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_GUARD_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A small process that outlives a launcher that is killed, and then cleans up after the job: the guard kills the
// process groups that it watches and all other processes of the job, and removes the job's shared memory.
//
// A process that a rank starts may create a new group or session. The guard finds such a process by the environment
// variable RONDA_LAUNCH, but not if the process was started with an empty environment.
//
// When the launcher dies, the kernel kills the ranks themselves (PR_SET_PDEATHSIG), but not the processes that they
// have started. Only the launcher holds the write end of a pipe. When the launcher dies, the pipe is closed, which
// tells the guard. The guard has its own session. So neither the terminal nor a signal to the launcher's process group
// reaches it.
//
// A helper such as mpirun ends its own processes, and has some time to do so before the guard kills the helper.
//
// Thread-compatible. The process that starts the guard must be single-threaded.
class Guard {
 public:
  // Errors: system errors.
  static absl::StatusOr<std::unique_ptr<Guard>> Start(const std::string& job_id);

  // The destructor ends the guard, and waits until it has ended. Before it ends, the guard kills the groups that were
  // not released, and all processes that have this launcher's marks.
  ~Guard();

  // How long a group may live after the launcher's death.
  enum class Grace { kNone, kSome };

  // From now on, the guard kills `group` if the launcher dies. Async-signal-safe: a rank calls Watch between fork and
  // exec, before it can start other processes.
  void Watch(pid_t group, Grace grace) const;

  // Returns the pid of the guard process.
  pid_t pid() const { return pid_; }

  // The name of the environment variable that contains a mark, followed by "=".
  static constexpr absl::string_view kVariable = "RONDA_LAUNCH=";

  // Returns a new value of RONDA_LAUNCH for a process that the launcher is about to start. All processes that it starts
  // inherit this value.
  std::string NewMark() const;

  // Makes the guard stop watching `group`. Must be called when the group has ended, because a new group may get the
  // same number.
  void Release(pid_t group) const;

 private:
  Guard(std::string token, pid_t pid, UniqueFd pipe);

  const std::string token_;  // begins the marks of this launcher
  mutable int marks_ = 0;
  const pid_t pid_;
  UniqueFd pipe_;
};

// Kills the processes of this user whose RONDA_LAUNCH starts with one of the marks. Returns when they have ended, or
// after a few seconds.
void KillMarked(const std::vector<std::string>& marks);

// Removes the shared memory that dead ranks of the job have left in ShmFolders(): every ronda-<job id>*. Does nothing
// if `job_id` is empty, which means that the id is unknown. REQUIRES: all job ids have the same length, so that
// `job_id` is not a prefix of another job's id.
void RemoveSharedMemoryLeftovers(const std::string& job_id);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_GUARD_H_
