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

// The description of a rank in messages, by which the user can find the rank's process.
struct Peer {
  RankId rank = 0;
  std::string host;
  pid_t pid = 0;
};

// Returns a text such as "rank 1 (host node7, pid 4242)".
inline std::string ToString(const Peer& peer) {
  return absl::StrCat("rank ", peer.rank, " (host ", peer.host, ", pid ", peer.pid, ")");
}

// Returns the error `failure` as the other ranks report it. The text then starts with the rank that has failed.
inline absl::Status Attribute(const absl::Status& failure, const Peer& peer) {
  return absl::Status(failure.code(), absl::StrCat(ToString(peer), ": ", failure.message()));
}

// Returns "rank 3" or "ranks 1, 3". If the list has many ranks, the text names only the first few, as in "ranks 1, 2, 3
// and 40 more", which are enough for the user to see a pattern.
std::string NameRanks(const std::vector<RankId>& ranks);

// The numbers of one rank in three groups: in the job, in its local group and in its cross group. Ranks on one host
// form the local group; ranks with the same local rank on different hosts form the cross group.
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

// Returns the id of the running kernel, which is the same in all containers of a machine. The id changes each time the
// machine is started. The result is empty if the id is not known.
std::string BootId();

// Returns an id that is equal for two processes if they can share memory and see each other's pids. The id is made of
// the kernel's id, the number of the file system at /dev/shm, and the number of the pid namespace. So containers on one
// machine that share neither /dev/shm nor the pid namespace are treated as different hosts.
std::string HostId();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_PEER_H_
