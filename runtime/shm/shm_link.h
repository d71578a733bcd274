// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_SHM_SHM_LINK_H_
#define RONDA_RUNTIME_SHM_SHM_LINK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

// Rank 0's message to the other ranks of the host. The message says where rank 0's shared memory is, because the memory
// has no name. If rank 0 has no memory, the message says why. The message is the text of a symbolic link:
//
//   /dev/shm/ronda-<job id>@<epoch> -> /proc/4242/fd/7 98765 0 1 pid:[4026531836]
//
// The kernel makes a link completely or not at all. If several processes try to make a link with the same name, only
// one of them succeeds. A link can be made even on a full file system. The ranks read the text of the link. No process
// follows the link.
struct ShmLink {
  ProcessId creator;          // rank 0
  int descriptor = -1;        // of the memory, in rank 0's process; -1: there is no memory
  int error_number = 0;       // why there is no memory
  bool is_locked = false;     // rank 0 holds the lock of LockForLink as long as it needs the link
  std::string pid_namespace;  // in which the creator's pid counts

  // Returns "/proc/4242/fd/7", the path by which other processes of the user open the memory.
  std::string Target() const;
};

// Returns a link to this process' descriptor. If there is no memory, the link contains the reason.
ShmLink ShmLinkOfThisProcess(int descriptor, int error_number);

// Locks a byte of `folder`. This process will publish its link in this folder. The kernel releases the lock when the
// returned descriptor is closed, at the latest when this process and the children that inherited the descriptor have
// ended. A process in another pid namespace cannot look up this process' pid, but sees from the lock whether the link
// is a leftover. Sets link->is_locked if it has taken the lock. Takes no lock if the folder is not on a tmpfs: other
// machines may also mount such a folder, and may not see the lock.
UniqueFd LockForLink(const std::string& folder, ShmLink* link);

// Makes the link `path`. Replaces a leftover at this path. Errors: ALREADY_EXISTS if the path may belong to another job
// of this user. All other errors are PERMISSION_DENIED as for ReadShmLink, and those of the system. After these other
// errors, another path may work.
absl::Status PublishShmLink(const std::string& path, const ShmLink& link);

// Errors: NOT_FOUND; PERMISSION_DENIED if `path` is another user's, or was made in another pid namespace;
// FAILED_PRECONDITION if `path` is not a link that Ronda has made.
absl::StatusOr<ShmLink> ReadShmLink(const std::string& path);

// Returns whether no rank needs the link at `path` any more: its creator is dead, or has closed the memory. A link from
// another pid namespace is a leftover only if its lock has been released.
bool IsLeftover(const std::string& path, const ShmLink& link);

// Removes the links in a folder that are left from this user's jobs which were killed while their ranks attached.
void RemoveShmLeftovers(const std::string& folder);

// Removes the link at `path` if it still is `link`.
void RemoveShmLink(const std::string& path, const ShmLink& link);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_LINK_H_
