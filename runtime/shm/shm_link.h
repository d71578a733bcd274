// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_SHM_SHM_LINK_H_
#define RONDA_RUNTIME_SHM_SHM_LINK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/monitor/peer_monitor.h"

namespace ronda {

// Rank 0's message to the other ranks of the host. It tells where rank 0's shared memory is, which has no name, or why
// rank 0 has no memory. The message is the text of a symbolic link:
//
//   /dev/shm/ronda-<job id>@<epoch> -> /proc/4242/fd/7 98765 0 1 pid:[4026531836]
//
// The kernel makes a link whole or not at all, for one process alone, and on a full file system too. No process follows
// the link: the ranks read its text.
struct ShmLink {
  ProcessId creator;          // rank 0
  int descriptor = -1;        // of the memory, in rank 0's process; -1: there is no memory
  int error_number = 0;       // why there is no memory
  bool is_locked = false;     // rank 0 holds the lock of LockForLink as long as it needs the link
  std::string pid_namespace;  // in which the creator's pid counts

  // Returns "/proc/4242/fd/7", the path by which other processes of the user open the memory.
  std::string Target() const;
};

// A link of this process.
ShmLink ShmLinkOfThisProcess(int descriptor, int error_number);

// Locks a byte of `folder`, where this process is about to publish the link. The kernel releases the lock when the
// returned descriptor is closed. At the latest, this is when this process and its children that have the descriptor
// have ended. So a process of another pid namespace, where this process has no pid, sees whether the link is a
// leftover. Sets link->is_locked. Takes no lock if the folder is not on a tmpfs: other machines may have the folder
// too, and may not see the lock.
UniqueFd LockForLink(const std::string& folder, ShmLink* link);

// Makes the link `path`, in place of a leftover. Errors: ALREADY_EXISTS if the path may belong to another job of this
// user. After the other errors, another path may work. They are PERMISSION_DENIED as for ReadShmLink, and errors of the
// system.
absl::Status PublishShmLink(const std::string& path, const ShmLink& link);

// Errors: NOT_FOUND; PERMISSION_DENIED if `path` is another user's, or was made in another pid namespace;
// FAILED_PRECONDITION if it is no such link.
absl::StatusOr<ShmLink> ReadShmLink(const std::string& path);

// Whether no rank needs the link `path` any more: its creator is dead or has closed the memory. A link of another pid
// namespace is a leftover only if its lock is released.
bool IsLeftover(const std::string& path, const ShmLink& link);

// Removes the links in a folder that this user's jobs left when they were killed while their ranks attached.
void RemoveShmLeftovers(const std::string& folder);

// Removes `path` if it is still `link`.
void RemoveShmLink(const std::string& path, const ShmLink& link);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_LINK_H_
