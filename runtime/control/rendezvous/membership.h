#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_MEMBERSHIP_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_MEMBERSHIP_H_

#include <string>
#include <vector>

#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/control/topology.h"

namespace ronda {

// What a rank tells the others about itself.
struct Member {
  Peer peer;
  std::string host_id;  // equal for ranks that can share memory
  std::string version;  // of Ronda
};

// A rank's wish to join a job.
struct JoinClaim {
  Member member;
  int size = 1;  // of the job, as this rank knows it
};

// The result of a rendezvous, the same on every rank.
struct Membership {
  std::string job_id;           // names the shared memory
  std::vector<Member> members;  // by rank
};

// Where `rank` stands: hosts are told apart by their ids and numbered by their lowest rank.
// REQUIRES: 0 <= rank < members.size().
Topology TopologyOf(const Membership& membership, RankId rank);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_MEMBERSHIP_H_
