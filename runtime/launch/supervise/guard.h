// Leaves nothing of a job behind, however it ends: processes, orphans of helpers, shared memory.
#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_GUARD_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_GUARD_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A small process that outlives the launcher if that is killed, and then kills the rest of the job: every
// process group that it was told of, and the job's shared memory.
//
// The kernel kills the ranks themselves when their launcher dies (PR_SET_PDEATHSIG), but not the processes that the
// ranks have started. The guard notices by the end of a pipe that only the launcher holds open; it has a session of its
// own, so that neither the terminal nor a signal to the launcher's group reaches it.
//
// A helper that ends processes of its own, such as mpirun, is given some time for that before it is killed.
//
// Thread-compatible; to be started by a single-threaded process.
class Guard {
 public:
  // Errors: the system's.
  static absl::StatusOr<std::unique_ptr<Guard>> Start(const std::string& job_id);

  // Ends the guard, and waits for it. Groups not released are killed.
  ~Guard();

  // How long a group may live on.
  enum class Patience { kNone, kSome };

  // From now on `group` dies with the launcher. Async-signal-safe: a rank calls it between fork and exec, so that
  // no moment is left in which it has started something the guard does not know of.
  void Watch(pid_t group, Patience patience) const;

  // The process that watches.
  pid_t pid() const { return pid_; }

  // `group` is over; its number may soon belong to another process.
  void Release(pid_t group) const;

 private:
  Guard(pid_t pid, UniqueFd pipe);

  const pid_t pid_;
  UniqueFd pipe_;
};

// From now on, processes below this one become its children when their parent dies, instead of escaping: those that a
// helper leaves behind when it has to be killed.
void AdoptOrphans();

// Kills all children of this process, with theirs that they leave behind, but for those in `spared`; returns when they
// are gone. To be called by a single-threaded process.
void KillOrphans(const std::vector<pid_t>& spared);

// Removes the shared memory that dead ranks of the job left in /dev/shm: every ronda-<job id>*. An empty `job_id` is
// unknown, and nothing is removed.
// REQUIRES: `job_id` is as long as all others, so that it is no prefix of another job's.
void RemoveSharedMemoryLeftovers(const std::string& job_id);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_GUARD_H_
