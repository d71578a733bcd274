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

// A property in which ranks may differ, for example {"byte order", "little"}.
struct Fact {
  std::string name;
  std::string value;

  bool operator==(const Fact&) const = default;
};

// What a rank reports about itself.
struct Member {
  Peer peer;
  std::string host_id;      // equal for ranks that can share memory
  std::string version;      // of Ronda
  std::string tcp_address;  // numeric address at which other ranks reach it over TCP
  int tcp_port = 0;         // 0: not reachable over TCP
  std::vector<Fact> facts;  // see rank_facts.h
};

// A rank's request to join a job.
struct JoinClaim {
  Member member;
  int size = 1;       // of the job, as this rank knows it
  int64_t epoch = 0;  // of the job, as this rank knows it
};

// The result of a rendezvous, which is the same on every rank.
struct MemberList {
  std::string job_id;           // names the shared memory
  std::vector<Member> members;  // by rank; only rank 0 has the facts of other ranks
};

// Returns the ranks of each host, ascending. Ranks with the same host id are on one host. Hosts are ordered by their
// lowest ranks.
std::vector<std::vector<RankId>> HostsOf(const MemberList& member_list);

// Returns the position of `rank` in the job and on its host. Hosts are identified and ordered as in HostsOf().
// REQUIRES: 0 <= rank < members.size().
Topology TopologyOf(const MemberList& member_list, RankId rank);

// The ranks that have joined a job so far. Rank 0, whose process owns the table, is a member from the start.
//
// A pure state machine: it uses no threads, clock or network.
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

  // Adds a rank to the table. A rejected claim changes only the text of a later DeadlineError().
  // Errors: INVALID_ARGUMENT if the claim's size differs from the job's, or its rank is out of range; ALREADY_EXISTS if
  // the rank has already joined; FAILED_PRECONDITION if the claim is for an earlier epoch of the job; ABORTED if it is
  // for a later epoch, which means that this epoch is over. All errors name the claim's rank, and either rank 0 or the
  // process that has already joined.
  absl::Status Add(const JoinClaim& claim);

  // Removes a rank that left before all ranks had joined, so that another process can join as this rank. REQUIRES:
  // `rank` is not 0 and has joined, and the table is not complete.
  void Remove(RankId rank);

  // Records why the table or its caller rejected a claim. A later DeadlineError() shows it as a possible reason for
  // missing ranks.
  void RecordRefusal(const absl::Status& refusal);

  bool complete() const { return joined_ == options_.size; }

  // Checks that the members agree (see CheckAgreement). The table must be complete, so that the error can name all
  // members that differ.
  // REQUIRES: complete().
  // Errors: the errors of CheckAgreement.
  absl::Status Agreement() const;

  // REQUIRES: complete().
  MemberList member_list() const;

  // Returns a DEADLINE_EXCEEDED error that names the ranks still missing after `waited`, and any known reasons.
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
