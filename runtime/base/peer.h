// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_PEER_H_
#define RONDA_RUNTIME_BASE_PEER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/types.h"

namespace ronda {

// Identifies a rank's process in messages to the user.
struct Peer {
  RankId rank = 0;
  std::string host;
  pid_t pid = 0;
};

// Returns a text such as "rank 1 (host node7, pid 4242)".
inline std::string ToString(const Peer& peer) {
  return absl::StrCat("rank ", peer.rank, " (host ", peer.host, ", pid ", peer.pid, ")");
}

// Returns the error that the other ranks report for `failure`: its text begins with the failed rank.
inline absl::Status Attribute(const absl::Status& failure, const Peer& peer) {
  return absl::Status(failure.code(), absl::StrCat(ToString(peer), ": ", failure.message()));
}

// Returns "rank 3" or "ranks 1, 3". Names only the first ranks of a long list, as in "ranks 1, 2, 3 and 40 more".
std::string NameRanks(const std::vector<RankId>& ranks);

// A rank's numbers in the job, in its local group and in its cross group. Ranks of one host form a local group; ranks
// of different hosts with the same local rank form a cross group.
struct Topology {
  RankId rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  std::string hostname = "localhost";
};

// Returns the name of this host, for messages; "localhost" if the host has no name.
std::string HostName();

// Returns the kernel's boot id, which is the same in all containers of a machine and changes at every boot. Returns an
// empty string if it is unknown.
std::string BootId();

// Returns an id that is equal for two processes if they can share memory and see each other's pids. The id combines the
// boot id, the device number of /dev/shm and the inode number of the pid namespace. So containers on one machine count
// as different hosts unless they share both /dev/shm and the pid namespace.
std::string HostId();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_PEER_H_
