#include "runtime/negotiation/request_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/describe.h"
#include "runtime/negotiation/operation_rules.h"

namespace ronda {
namespace {

absl::Status CheckMember(absl::string_view what, RankId member, RankId rank, const TensorRequest& request,
                         const Group& members, const Roster& roster) {
  if (members.Contains(member)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(roster.Describe(rank), " submits ", DescribeTensor(request), " with ",
                                                 what, " ", member, ", which is not in process set ",
                                                 request.process_set, " of ", members.size(), " ranks"));
}

absl::Status CheckProcessSetChange(RankId rank, const TensorRequest& request, const Roster& roster) {
  if (request.process_set != kGlobalProcessSet) {
    return absl::InvalidArgumentError(absl::StrCat(roster.Describe(rank), " submits ", DescribeTensor(request),
                                                   " on process set ", request.process_set));
  }
  if (request.op == OpType::kAddProcessSet && (request.members.empty() || !roster.Has(request.members.back()))) {
    return absl::InvalidArgumentError(
        absl::StrCat(roster.Describe(rank), " adds a process set of other ranks than 0 to ", roster.size() - 1));
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

absl::Status CheckRequest(RankId rank, const TensorRequest& request, const Group& members, const Roster& roster) {
  if (!members.Contains(rank)) {
    return absl::InvalidArgumentError(absl::StrCat(roster.Describe(rank), " submits ", DescribeTensor(request),
                                                   " and is not in process set ", request.process_set));
  }
  if (ChangesProcessSets(request.op)) return CheckProcessSetChange(rank, request, roster);
  if (!HasRoot(request.op)) return absl::OkStatus();
  if (request.op != OpType::kSendRecv) return CheckMember("root", request.root, rank, request, members, roster);
  RONDA_RETURN_IF_ERROR(CheckMember("sender", request.root, rank, request, members, roster));
  RONDA_RETURN_IF_ERROR(CheckMember("receiver", request.receiver, rank, request, members, roster));
  if (request.root != request.receiver && (rank == request.root || rank == request.receiver)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(roster.Describe(rank), " submits ", DescribeTensor(request),
                                                 ", from rank ", request.root, " to rank ", request.receiver));
}

absl::Status CheckFeasible(const TensorRequest& request, const std::vector<RankId>& joined,
                           const ProcessSetTable& process_sets, const Roster& roster) {
  if (!joined.empty()) {
    const bool root_joined = HasRoot(request.op) && std::binary_search(joined.begin(), joined.end(), request.root);
    if (!RunsWithoutJoined(request.op) || root_joined) {
      const RankId culprit = root_joined ? request.root : joined.front();
      return absl::FailedPreconditionError(
          absl::StrCat(DescribeTensor(request), " needs ", roster.Describe(culprit),
                       root_joined && request.op != OpType::kSendRecv ? ", its root" : "", ", which has joined"));
    }
  }
  return request.op == OpType::kRemoveProcessSet ? CheckRemoval(request, process_sets) : absl::OkStatus();
}

}  // namespace ronda
