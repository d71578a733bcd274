#ifndef RONDA_RUNTIME_BASE_PEER_H_
#define RONDA_RUNTIME_BASE_PEER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/types.h"

namespace ronda {

// How messages name a rank: by what a user needs to find its process.
struct Peer {
  RankId rank = 0;
  std::string host;
  pid_t pid = 0;
};

// "rank 1 (host node7, pid 4242)"
inline std::string ToString(const Peer& peer) {
  return absl::StrCat("rank ", peer.rank, " (host ", peer.host, ", pid ", peer.pid, ")");
}

// `failure` as the other ranks read it: its text starts with whose it is.
inline absl::Status Attribute(const absl::Status& failure, const Peer& peer) {
  return absl::Status(failure.code(), absl::StrCat(ToString(peer), ": ", failure.message()));
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_PEER_H_
