// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/participants.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

absl::Status CheckMember(absl::string_view role, RankId member, RankId rank, const TensorRequest& request,
                         const Group& members, const JobRanks& ranks) {
  if (members.Contains(member)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ranks.Describe(rank), " submits ", DescribeTensor(request), " with ",
                                                 role, " ", member, ", which is not in process set ",
                                                 request.process_set, " of ", members.size(), " ranks"));
}

// Checks a request that adds or removes a process set. If only its members created a set, its removal must be an
// operation on the set itself.
absl::Status CheckProcessSetChange(RankId rank, const TensorRequest& request, const ProcessSetTable& process_sets,
                                   const JobRanks& ranks) {
  const bool on_itself = request.op == OpType::kRemoveProcessSet && request.process_set == request.subject &&
                         process_sets.CreatedByMembers(request.subject);
  if (request.process_set != kGlobalProcessSet && !on_itself) {
    return absl::InvalidArgumentError(absl::StrCat(ranks.Describe(rank), " submits ", DescribeTensor(request),
                                                   " on process set ", request.process_set));
  }
  const OperationTraits& traits = TraitsOf(request.op);
  if (traits.adds_process_set && (request.members.empty() || !ranks.Has(request.members.back()))) {
    return absl::InvalidArgumentError(
        absl::StrCat(ranks.Describe(rank), " adds a process set of other ranks than 0 to ", ranks.size() - 1));
  }
  if (traits.by_new_members && !std::binary_search(request.members.begin(), request.members.end(), rank)) {
    return absl::InvalidArgumentError(
        absl::StrCat(ranks.Describe(rank), " creates ", NameForErrors(request), ", and is not in it"));
  }
  return absl::OkStatus();
}

absl::Status CheckRemoval(const TensorRequest& request, const ProcessSetTable& process_sets) {
  if (request.subject == kGlobalProcessSet) {
    return absl::FailedPreconditionError("process set 0 holds all ranks of the job and cannot be removed");
  }
  if (process_sets.Find(request.subject) != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("process set ", request.subject,
                   process_sets.Known(request.subject) ? " was removed before" : " does not exist"));
}

}  // namespace

ProcessSetTable::ProcessSetTable(int world_size) {
  sets_.push_back(std::make_shared<const Group>(Group::All(world_size)));
  by_members_.push_back(false);
}

absl::Status ProcessSetTable::Apply(const Response& response) {
  if (TraitsOf(response.request.op).adds_process_set) return Add(response.request);
  if (response.request.op == OpType::kRemoveProcessSet) return Remove(response.request.subject);
  return absl::OkStatus();
}

absl::Status ProcessSetTable::Add(const TensorRequest& request) {
  const std::vector<RankId>& members = request.members;
  if (request.subject != next_id()) {
    return absl::InvalidArgumentError(
        absl::StrCat("process set ", request.subject, " is added where ", next_id(), " is the next"));
  }
  const int world_size = sets_[kGlobalProcessSet]->size();
  const bool ascending = std::is_sorted(members.begin(), members.end(), std::less_equal<RankId>());
  if (members.empty() || !ascending || members.front() < 0 || members.back() >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("process set ", request.subject, " of other ranks than 0 to ",
                                                   world_size - 1, ", each once and in ascending order"));
  }
  sets_.push_back(std::make_shared<const Group>(members));
  by_members_.push_back(TraitsOf(request.op).by_new_members);
  return absl::OkStatus();
}

absl::Status ProcessSetTable::Remove(ProcessSetId id) {
  if (id == kGlobalProcessSet || Find(id) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("process set ", id, " is removed and is not there"));
  }
  sets_[id] = nullptr;
  return absl::OkStatus();
}

std::vector<RankId> SetJoins::ranks() const {
  std::vector<RankId> ranks;
  for (int position = 0; position < members->size(); ++position) {
    if (joined.Contains(position)) ranks.push_back((*members)[position]);
  }
  return ranks;
}

SetJoins* JoinTable::Add(RankId rank, const TensorRequest& request, const std::shared_ptr<const Group>& members,
                         absl::Time now) {
  const auto [it, is_new] = sets_.try_emplace(request.process_set);
  SetJoins& joins = it->second;
  if (is_new) {
    joins.request = request;
    joins.members = members;
    joins.joined.Reset(members->size());
    joins.first = rank;
  }
  joins.joined.Insert(*members->PositionOf(rank));
  joins.last = rank;
  joins.since = now;
  return &joins;
}

std::vector<ProcessSetId> JoinTable::sets() const {
  std::vector<ProcessSetId> ids;
  for (const auto& [id, joins] : sets_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::shared_ptr<const Group> ParticipantsOf(const TensorRequest& request, std::shared_ptr<const Group> members) {
  if (TraitsOf(request.op).by_new_members) return std::make_shared<const Group>(request.members);
  if (request.op != OpType::kSendRecv || IsFromAnyRank(request)) return members;
  const auto [low, high] = std::minmax(request.root, request.receiver);
  return std::make_shared<const Group>(std::vector<RankId>{low, high});
}

absl::Status CheckRequest(RankId rank, const TensorRequest& request, const ProcessSetTable& process_sets,
                          const JobRanks& ranks) {
  const Group& members = *process_sets.Find(request.process_set);
  if (!members.Contains(rank)) {
    return absl::InvalidArgumentError(absl::StrCat(ranks.Describe(rank), " submits ", DescribeTensor(request),
                                                   " and is not in process set ", request.process_set));
  }
  if (TraitsOf(request.op).changes_process_sets) {
    return CheckProcessSetChange(rank, request, process_sets, ranks);
  }
  if (!TraitsOf(request.op).has_root()) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(CheckMember(TraitsOf(request.op).root, request.root, rank, request, members, ranks));
  if (request.op != OpType::kSendRecv) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(CheckMember("receiver", request.receiver, rank, request, members, ranks));
  const bool has_two_ends = request.root != request.receiver || IsFromAnyRank(request);
  const bool is_end = rank == request.receiver || (rank == request.root && !IsOrderedReceive(request));
  if (has_two_ends && is_end) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ranks.Describe(rank), " submits ", DescribeTensor(request),
                                                 ", from rank ", request.root, " to rank ", request.receiver));
}

absl::Status CheckFeasible(const TensorRequest& request, const std::vector<RankId>& joined,
                           const ProcessSetTable& process_sets, const JobRanks& ranks) {
  const OperationTraits& traits = TraitsOf(request.op);
  const bool root_joined = traits.has_root() && std::binary_search(joined.begin(), joined.end(), request.root);
  if (root_joined || (!joined.empty() && !traits.runs_without_joined)) {
    const RankId culprit = root_joined ? request.root : joined.front();
    return absl::FailedPreconditionError(
        absl::StrCat(DescribeTensor(request), " needs ", ranks.Describe(culprit),
                     root_joined && request.op != OpType::kSendRecv ? ", its root" : "", ", which has joined"));
  }
  return request.op == OpType::kRemoveProcessSet ? CheckRemoval(request, process_sets) : absl::OkStatus();
}

}  // namespace ronda
