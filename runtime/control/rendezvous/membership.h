#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_MEMBERSHIP_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_MEMBERSHIP_H_

#include <string>
#include <vector>

#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/control/topology.h"

namespace ronda {

// What a rank says about itself that may not be the same everywhere: {"byte order", "little"}.
struct Fact {
  std::string name;
  std::string value;

  bool operator==(const Fact&) const = default;
};

// What a rank tells the others about itself.
struct Member {
  Peer peer;
  std::string host_id;          // equal for ranks that can share memory
  std::string version;          // of Ronda
  std::string control_address;  // where its children in the tree of control connections reach it; numeric
  int control_port = 0;         // 0: nowhere
  std::string data_address;     // where other ranks reach it for messages over TCP; numeric
  int data_port = 0;            // 0: nowhere
  std::vector<Fact> facts;      // (agreement.h)
};

// A rank's wish to join a job.
struct JoinClaim {
  Member member;
  int size = 1;  // of the job, as this rank knows it
};

// The result of a rendezvous, the same on every rank.
struct Membership {
  std::string job_id;           // names the shared memory
  std::vector<Member> members;  // by rank; only on rank 0 with the facts of others than rank 0
};

// The ranks of each host, ascending; hosts are told apart by their ids and numbered by their lowest rank.
std::vector<std::vector<RankId>> HostsOf(const Membership& membership);

// Where `rank` stands: hosts are told apart by their ids and numbered by their lowest rank.
// REQUIRES: 0 <= rank < members.size().
Topology TopologyOf(const Membership& membership, RankId rank);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_MEMBERSHIP_H_
