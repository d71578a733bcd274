// SPDX-License-Identifier: Apache-2.0

// Removes the rest of a job, however the job ends. The rest of a job is its processes, the processes that its helpers
// have left behind, and its shared memory.
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

// A small process that outlives a launcher that is killed, and then ends the rest of the job. The guard kills the
// process groups that it watches and all other processes of the job, and removes the job's shared memory.
//
// A process that a rank starts may make a new group or session. The guard finds such a process by its environment
// variable RONDA_LAUNCH. The guard cannot find a process that was started with an empty environment.
//
// The kernel kills the ranks themselves when their launcher dies (PR_SET_PDEATHSIG), but not the processes that the
// ranks have started. Only the launcher has the write end of a pipe. When the launcher dies, the pipe ends, so the
// guard knows that the launcher is dead. The guard has its own session. So neither the terminal nor a signal to the
// launcher's process group reaches the guard.
//
// A helper such as mpirun ends its own processes, and has a little time for this before the guard kills the helper.
//
// Thread-compatible. The process that starts the guard must be single-threaded.
class Guard {
 public:
  // Errors: the operating system's errors.
  static absl::StatusOr<std::unique_ptr<Guard>> Start(const std::string& job_id);

  // The destructor ends the guard, and waits until the guard has ended. Before it ends, the guard kills the groups that
  // were not released, and all processes that have the launcher's marks.
  ~Guard();

  // How long a group may live after the launcher's death.
  enum class Grace { kNone, kSome };

  // From now on, the guard kills `group` if the launcher dies. Watch is async-signal-safe: a rank calls it between fork
  // and exec, before the rank can start other processes.
  void Watch(pid_t group, Grace grace) const;

  // Returns the pid of the guard's process.
  pid_t pid() const { return pid_; }

  // The name of the environment variable that contains a mark, with "=".
  static constexpr absl::string_view kVariable = "RONDA_LAUNCH=";

  // Returns a new value of RONDA_LAUNCH, for a process that the launcher starts. All processes that this process starts
  // inherit the value.
  std::string NewMark() const;

  // Makes the guard stop watching `group`. The caller must call Release when the group has ended, because a new group
  // may get the same number.
  void Release(pid_t group) const;

 private:
  Guard(std::string token, pid_t pid, UniqueFd pipe);

  const std::string token_;  // begins the marks of this launcher
  mutable int marks_ = 0;
  const pid_t pid_;
  UniqueFd pipe_;
};

// Kills the processes of this user whose RONDA_LAUNCH begins with one of the marks. Returns when these processes have
// ended, or after some seconds.
void KillMarked(const std::vector<std::string>& marks);

// Removes the shared memory that dead ranks of the job have left in ShmFolders(): every ronda-<job id>*. Removes
// nothing if `job_id` is empty, because then the id is unknown. REQUIRES: all job ids have the same length, so that
// `job_id` is not the beginning of another job's id.
void RemoveSharedMemoryLeftovers(const std::string& job_id);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_GUARD_H_
