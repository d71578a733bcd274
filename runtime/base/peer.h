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

// The name of a rank in messages. With this name a user finds the rank's process.
struct Peer {
  RankId rank = 0;
  std::string host;
  pid_t pid = 0;
};

// "rank 1 (host node7, pid 4242)"
inline std::string ToString(const Peer& peer) {
  return absl::StrCat("rank ", peer.rank, " (host ", peer.host, ", pid ", peer.pid, ")");
}

// Returns `failure` as the other ranks report it: the text starts with the rank that has failed.
inline absl::Status Attribute(const absl::Status& failure, const Peer& peer) {
  return absl::Status(failure.code(), absl::StrCat(ToString(peer), ": ", failure.message()));
}

// Returns "rank 3" or "ranks 1, 3". For many ranks it names only the first ones, "ranks 1, 2, 3 and 40 more", because
// these are enough to see the pattern.
std::string NameRanks(const std::vector<RankId>& ranks);

// The numbers of a rank in the job and in two groups of it. Ranks on one host form the local group; ranks with the same
// local rank on different hosts form the cross group.
struct Topology {
  RankId rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  std::string hostname = "localhost";
};

// The name of this host, for messages; "localhost" if it has none.
std::string HostName();

// Returns the id of the running kernel, which containers share. Every start of the machine has a new id. The result is
// empty if the id is not known.
std::string BootId();

// Returns an id that is equal for two processes if they can share memory and see each other's pids. The id consists of
// the running kernel, its /dev/shm and the pid namespace. Containers of one machine that share neither /dev/shm nor the
// pid namespace are treated as different hosts.
std::string HostId();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_PEER_H_
