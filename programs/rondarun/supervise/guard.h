// SPDX-License-Identifier: Apache-2.0

// Removes the rest of a job, however the job ends. The rest is its processes, orphans of its helpers, and its shared
// memory.
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

// A small process that outlives a launcher that is killed, and then ends the rest of the job. It kills the process
// groups that it watches and all other processes that the job has started, and removes the job's shared memory.
//
// A process that a rank starts may make a new group or session. The guard finds it by RONDA_LAUNCH in the environment
// that it was started with. A process that was started with an empty environment escapes.
//
// The kernel kills the ranks themselves when their launcher dies (PR_SET_PDEATHSIG), but not the processes that the
// ranks have started. The launcher alone holds one end of a pipe open, and the guard notices the launcher's death by
// the end of that pipe. The guard has its own session, so that neither the terminal nor a signal to the launcher's
// group reaches it.
//
// A helper that ends its own processes, such as mpirun, gets some time for that before the guard kills it.
//
// Thread-compatible. A single-threaded process starts it.
class Guard {
 public:
  // Errors: the operating system's errors.
  static absl::StatusOr<std::unique_ptr<Guard>> Start(const std::string& job_id);

  // Ends the guard, and waits for it. The guard kills the groups that were not released, and all processes that have
  // the launcher's marks.
  ~Guard();

  // How long a group may live on.
  enum class Grace { kNone, kSome };

  // From now on `group` dies with the launcher. Async-signal-safe: a rank calls it between fork and exec, before it can
  // start other processes.
  void Watch(pid_t group, Grace grace) const;

  // The process that watches.
  pid_t pid() const { return pid_; }

  // The beginning of a mark's entry in the environment.
  static constexpr absl::string_view kVariable = "RONDA_LAUNCH=";

  // A new value of RONDA_LAUNCH, for a process that the launcher starts. The processes that it starts inherit the
  // value.
  std::string NewMark() const;

  // The guard does not watch `group` any more. The group has ended, and another process may get its number.
  void Release(pid_t group) const;

 private:
  Guard(std::string token, pid_t pid, UniqueFd pipe);

  const std::string token_;  // begins the marks of this launcher
  mutable int marks_ = 0;
  const pid_t pid_;
  UniqueFd pipe_;
};

// Kills the processes of this user whose RONDA_LAUNCH begins with one of the marks. Returns when they have ended, or
// after some seconds.
void KillMarked(const std::vector<std::string>& marks);

// Removes the shared memory that dead ranks of the job have left in ShmFolders(): every ronda-<job id>*. Removes
// nothing if `job_id` is empty, which means that it is unknown. REQUIRES: `job_id` is as long as the ids of all other
// jobs, so that it is no prefix of them.
void RemoveSharedMemoryLeftovers(const std::string& job_id);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_GUARD_H_
