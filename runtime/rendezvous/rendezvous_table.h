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

// A property of a rank that may differ between ranks, for example {"byte order", "little"}.
struct Fact {
  std::string name;
  std::string value;

  bool operator==(const Fact&) const = default;
};

// What a rank says about itself.
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

// The result of a rendezvous, which is the same on every rank.
struct MemberList {
  std::string job_id;           // names the shared memory
  std::vector<Member> members;  // by rank; only on rank 0 with the facts of other ranks
};

// Returns the ranks of each host in ascending order. A host is identified by its id, and hosts are numbered in the
// order of their lowest ranks.
std::vector<std::vector<RankId>> HostsOf(const MemberList& member_list);

// Returns the position of `rank` in the job and on its host. A host is identified by its id, and hosts are numbered in
// the order of their lowest ranks. REQUIRES: 0 <= rank < members.size().
Topology TopologyOf(const MemberList& member_list, RankId rank);

// The table of the ranks that have joined a job so far. Rank 0, whose process keeps the table, is a member from the
// start.
//
// The table is a pure state machine, which uses no thread, no clock and no network.
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

  // Adds a rank to the table. If a claim is refused, only the text of a later DeadlineError changes.
  // Errors: INVALID_ARGUMENT if the claim has another size, or a rank that does not exist; ALREADY_EXISTS if the rank
  // has already joined; FAILED_PRECONDITION if the claim is for an earlier epoch of the job; ABORTED if it is for a
  // later epoch, so that this epoch is over. All errors name the rank of the claim, and rank 0 or the process that has
  // already joined.
  absl::Status Add(const JoinClaim& claim);

  // Removes a rank that has left before all ranks had joined. When a rank has been removed, another process may join as
  // this rank. REQUIRES: `rank` is not 0, has joined, and the table is not complete.
  void Remove(RankId rank);

  // Records why the table or its caller has refused a claim, because the refusal may be the reason why a rank is
  // missing.
  void RecordRefusal(const absl::Status& refusal);

  bool complete() const { return joined_ == options_.size; }

  // Checks that the members can work together. Must be called at the end: only when all members are known can the error
  // name the members that differ.
  // REQUIRES: complete().
  // Errors: the errors of CheckAgreement.
  absl::Status Agreement() const;

  // REQUIRES: complete().
  MemberList member_list() const;

  // Returns DEADLINE_EXCEEDED that names the ranks that are still missing after `waited`, and the known reasons.
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
