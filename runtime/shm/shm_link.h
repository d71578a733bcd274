// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_SHM_SHM_LINK_H_
#define RONDA_RUNTIME_SHM_SHM_LINK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

// Rank 0's message to the other ranks of the host. The message tells where rank 0's shared memory is, because the
// memory has no name. If rank 0 has no memory, the message tells why. The message is the text of a symbolic link:
//
//   /dev/shm/ronda-<job id>@<epoch> -> /proc/4242/fd/7 98765 0 1 pid:[4026531836]
//
// The kernel makes a link completely or not at all. If several processes try to make the same link, only one succeeds.
// A link can be made even on a full file system. The ranks read the text of the link, and no process follows it.
struct ShmLink {
  ProcessId creator;          // rank 0
  int descriptor = -1;        // of the memory, in rank 0's process; -1: there is no memory
  int error_number = 0;       // why there is no memory
  bool is_locked = false;     // rank 0 holds the lock of LockForLink as long as it needs the link
  std::string pid_namespace;  // in which the creator's pid counts

  // Returns "/proc/4242/fd/7", the path by which other processes of the user open the memory.
  std::string Target() const;
};

// Returns a link to this process's descriptor, or with the reason why there is no memory.
ShmLink ShmLinkOfThisProcess(int descriptor, int error_number);

// Locks a byte of `folder`, where this process is about to publish the link. The kernel releases the lock when the
// returned descriptor is closed, at the latest when this process and the children that inherited the descriptor have
// ended. A process of another pid namespace cannot look up this process's pid, but it sees from the lock whether the
// link is a leftover. Sets link->is_locked. Takes no lock if the folder is not on a tmpfs, because other machines may
// also mount the folder and may not see the lock.
UniqueFd LockForLink(const std::string& folder, ShmLink* link);

// Makes the link `path`. Replaces a leftover at this path. Errors: ALREADY_EXISTS if the path may belong to another job
// of this user. The other errors are PERMISSION_DENIED as for ReadShmLink, and errors of the system; another path may
// then work.
absl::Status PublishShmLink(const std::string& path, const ShmLink& link);

// Errors: NOT_FOUND; PERMISSION_DENIED if `path` is another user's, or was made in another pid namespace;
// FAILED_PRECONDITION if `path` is not a link that Ronda has made.
absl::StatusOr<ShmLink> ReadShmLink(const std::string& path);

// Returns whether no rank needs the link `path` any more, because its creator is dead or has closed the memory. A link
// of another pid namespace is a leftover only if its lock is released.
bool IsLeftover(const std::string& path, const ShmLink& link);

// Removes the links in a folder that are left from this user's jobs which were killed while their ranks attached.
void RemoveShmLeftovers(const std::string& folder);

// Removes `path` if it is still `link`.
void RemoveShmLink(const std::string& path, const ShmLink& link);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_LINK_H_
