// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_TABLE_H_
#define RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"

namespace ronda {

// A property of a rank that may differ between ranks: {"byte order", "little"}.
struct Fact {
  std::string name;
  std::string value;

  bool operator==(const Fact&) const = default;
};

// A rank's description of itself.
struct Member {
  Peer peer;
  std::string host_id;      // equal for ranks that can share memory
  std::string version;      // of Ronda
  std::string tcp_address;  // where other ranks reach it for messages over TCP; numeric
  int tcp_port = 0;         // 0: nowhere
  std::vector<Fact> facts;  // see rank_facts.h
};

// The request of a rank to join a job.
struct JoinClaim {
  Member member;
  int size = 1;       // of the job, as this rank knows it
  int64_t epoch = 0;  // of the job, as this rank knows it
};

// The result of a rendezvous, the same on every rank.
struct MemberList {
  std::string job_id;           // names the shared memory
  std::vector<Member> members;  // by rank; only on rank 0 with the facts of other ranks
};

// Returns the ranks of each host, ascending. Hosts are distinguished by their ids and numbered by their lowest rank.
std::vector<std::vector<RankId>> HostsOf(const MemberList& member_list);

// Returns the place of `rank` in the job. Hosts are distinguished by their ids and numbered by their lowest rank.
// REQUIRES: 0 <= rank < members.size().
Topology TopologyOf(const MemberList& member_list, RankId rank);

// The ranks that have joined a job so far. Rank 0, whose process keeps the table, is a member from the start.
//
// A pure state machine: no threads, clocks or network.
//
// Thread-compatible.
class RendezvousTable {
 public:
  struct Options {
    std::string job_id;
    int size = 1;       // of the job
    int64_t epoch = 0;  // of the job
    Member coordinator;
  };

  explicit RendezvousTable(Options options);

  const Options& options() const { return options_; }

  // Admits a rank. A refused claim changes nothing except the text of a later DeadlineError.
  // Errors, all of which name both ranks: INVALID_ARGUMENT (another size, no such rank); ALREADY_EXISTS (the rank has
  // already joined); FAILED_PRECONDITION (an earlier epoch of the job); ABORTED (a later epoch: this one is over).
  absl::Status Add(const JoinClaim& claim);

  // Removes a rank that went away before the job was complete. Then another process may join as this rank.
  // REQUIRES: `rank` is not 0, has joined, and the table is not complete.
  void Remove(RankId rank);

  // Remembers why a claim was refused, here or by the caller, because this may be the reason why a rank is missing.
  void RecordRefusal(const absl::Status& refusal);

  bool complete() const { return joined_ == options_.size; }

  // Checks that the members can work together. This is checked at the end, because only all members together show which
  // member differs.
  // REQUIRES: complete().
  // Errors: the errors of CheckAgreement.
  absl::Status Agreement() const;

  // REQUIRES: complete().
  MemberList member_list() const;

  // Returns DEADLINE_EXCEEDED that names the ranks missing after `waited`, and the known reasons.
  absl::Status DeadlineError(absl::Duration waited) const;

 private:
  absl::Status Check(const JoinClaim& claim) const;

  const Options options_;
  std::vector<std::optional<Member>> members_;  // by rank
  int joined_ = 0;
  std::vector<std::string> notes_;  // refusals and departures; the oldest kMaxNotes
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_TABLE_H_
