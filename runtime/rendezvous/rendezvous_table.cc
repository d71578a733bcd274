// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/rendezvous_table.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/peer.h"
#include "runtime/rendezvous/rank_facts.h"

namespace ronda {
namespace {

// The largest number of reasons in an error. The error must fit into one message to each rank.
constexpr size_t kMaxNotes = 4;

}  // namespace

std::vector<std::vector<RankId>> HostsOf(const MemberList& member_list) {
  std::map<std::string, size_t> numbers;
  std::vector<std::vector<RankId>> hosts;
  for (const Member& member : member_list.members) {
    const auto [it, is_new] = numbers.try_emplace(member.host_id, hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[it->second].push_back(member.peer.rank);
  }
  return hosts;
}

Topology TopologyOf(const MemberList& member_list, RankId rank) {
  const Member& self = member_list.members[rank];
  Topology topology{.rank = rank, .size = static_cast<int>(member_list.members.size()), .hostname = self.peer.host};

  std::map<std::string, int> ranks_on_host;
  std::vector<int> local_ranks;
  for (const Member& member : member_list.members) local_ranks.push_back(ranks_on_host[member.host_id]++);
  topology.local_rank = local_ranks[rank];
  topology.local_size = ranks_on_host[self.host_id];

  topology.cross_size = 0;
  // Counts the hosts that have a rank with local rank `topology.local_rank`, in the order of their lowest ranks, which
  // are the ranks with local rank 0.
  for (size_t i = 0; i < local_ranks.size(); ++i) {
    const std::string& host_id = member_list.members[i].host_id;
    if (local_ranks[i] != 0 || ranks_on_host[host_id] <= topology.local_rank) continue;
    if (host_id == self.host_id) topology.cross_rank = topology.cross_size;
    ++topology.cross_size;
  }
  return topology;
}

RendezvousTable::RendezvousTable(Options options) : options_(std::move(options)), members_(options_.size) {
  RONDA_CHECK(options_.size >= 1 && options_.coordinator.peer.rank == kCoordinatorRank);
  members_[kCoordinatorRank] = options_.coordinator;
  joined_ = 1;
}

absl::Status RendezvousTable::Check(const JoinClaim& claim) const {
  const Member& member = claim.member;
  const std::string joining_rank = ToString(member.peer);
  const std::string coordinator = ToString(options_.coordinator.peer);
  if (claim.epoch != options_.epoch) {
    const bool is_earlier = claim.epoch < options_.epoch;
    return absl::Status(is_earlier ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kAborted,
                        absl::StrCat(joining_rank, " has come for epoch ", claim.epoch, " of the job, but ",
                                     coordinator, " is in epoch ", options_.epoch, ": give every rank the same epoch"));
  }
  if (claim.size != options_.size) {
    return absl::InvalidArgumentError(absl::StrCat(joining_rank, " says that the job has ", claim.size, " ranks, but ",
                                                   coordinator, " says ", options_.size,
                                                   ": give every rank the same size"));
  }
  if (member.peer.rank < 0 || member.peer.rank >= options_.size) {
    return absl::InvalidArgumentError(absl::StrCat(joining_rank, " is not in the job of ", coordinator,
                                                   ", which has ranks 0 to ", options_.size - 1));
  }
  if (const std::optional<Member>& holder = members_[member.peer.rank]; holder) {
    return absl::AlreadyExistsError(absl::StrCat(joining_rank, " cannot join: ", ToString(holder->peer),
                                                 " has joined already; give every process a rank of its own"));
  }
  return absl::OkStatus();
}

absl::Status RendezvousTable::Add(const JoinClaim& claim) {
  if (absl::Status refusal = Check(claim); !refusal.ok()) {
    RecordRefusal(refusal);
    return refusal;
  }
  members_[claim.member.peer.rank] = claim.member;
  ++joined_;
  return absl::OkStatus();
}

void RendezvousTable::Remove(RankId rank) {
  RONDA_CHECK(rank != kCoordinatorRank && !complete() && members_[rank].has_value());
  if (notes_.size() < kMaxNotes)
    notes_.push_back(absl::StrCat(ToString(members_[rank]->peer), " had joined but went away"));
  members_[rank].reset();
  --joined_;
}

void RendezvousTable::RecordRefusal(const absl::Status& refusal) {
  if (notes_.size() < kMaxNotes) notes_.push_back(std::string(refusal.message()));
}

MemberList RendezvousTable::member_list() const {
  RONDA_CHECK(complete());
  MemberList member_list{.job_id = options_.job_id};
  for (const std::optional<Member>& member : members_) member_list.members.push_back(*member);
  return member_list;
}

absl::Status RendezvousTable::Agreement() const { return CheckAgreement(member_list().members); }

absl::Status RendezvousTable::DeadlineError(absl::Duration waited) const {
  std::vector<RankId> missing;
  for (RankId rank = 0; rank < options_.size; ++rank) {
    if (!members_[rank]) missing.push_back(rank);
  }
  std::string text = absl::StrCat(NameRanks(missing), " of ", options_.size, " did not join ",
                                  ToString(options_.coordinator.peer), " within ", absl::FormatDuration(waited));
  for (const std::string& note : notes_) absl::StrAppend(&text, "; ", note);
  return absl::DeadlineExceededError(text);
}

}  // namespace ronda
