// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_SHM_SHM_LINK_H_
#define RONDA_RUNTIME_SHM_SHM_LINK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

// Tells the other ranks of the host where rank 0's unnamed shared memory is, or why there is none. The message is the
// text of a symbolic link:
//
//   /dev/shm/ronda-<job id>@<epoch> -> /proc/4242/fd/7 98765 0 1 pid:[4026531836]
//
// Creating a link is atomic, only one of several processes can create a link with a given name, and it works even on a
// full file system. The ranks read the text of the link, and never follow it.
struct ShmLink {
  ProcessId creator;          // rank 0
  int descriptor = -1;        // of the memory, in rank 0's process; -1: there is no memory
  int error_number = 0;       // why there is no memory
  bool is_locked = false;     // rank 0 holds the lock of LockForLink() while it needs the link
  std::string pid_namespace;  // of the creator's pid

  // Returns the path at which the user's other processes open the memory, such as "/proc/4242/fd/7".
  std::string Target() const;
};

// Returns a link to a descriptor of this process or, if `descriptor` is -1, the reason why there is no memory.
ShmLink ShmLinkOfThisProcess(int descriptor, int error_number);

// Locks a byte of `folder`, in which this process will publish its link. A process in a different pid namespace cannot
// look up this process's pid; the lock tells it whether the link is a leftover. The kernel releases the lock when the
// returned descriptor is closed, at the latest when this process and any children that inherited it exit. Sets
// link->is_locked if it has taken the lock. Takes no lock if the folder is not on a tmpfs, because other machines may
// mount such a folder without seeing its locks.
UniqueFd LockForLink(const std::string& folder, ShmLink* link);

// Creates the link `path`, replacing a leftover at this path. Errors: ALREADY_EXISTS if the path may belong to another
// job of this user. After any other error (PERMISSION_DENIED as in ReadShmLink(), or a system error), a different path
// may work.
absl::Status PublishShmLink(const std::string& path, const ShmLink& link);

// Errors: NOT_FOUND; PERMISSION_DENIED if `path` belongs to another user, or was created in another pid namespace;
// FAILED_PRECONDITION if `path` is not a link of Ronda's.
absl::StatusOr<ShmLink> ReadShmLink(const std::string& path);

// Returns whether no rank needs the link at `path` any longer, because its creator is dead or has closed the memory. A
// link from another pid namespace is a leftover only if it had a lock, which has been released.
bool IsLeftover(const std::string& path, const ShmLink& link);

// Removes the links in a folder that are left over from jobs of this user that were killed while their ranks attached.
void RemoveShmLeftovers(const std::string& folder);

// Removes the link at `path` if it still equals `link`.
void RemoveShmLink(const std::string& path, const ShmLink& link);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_LINK_H_
