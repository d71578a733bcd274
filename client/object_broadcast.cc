#include "client/object_broadcast.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ronda {

absl::StatusOr<std::unique_ptr<ObjectBroadcast::Plan>> ObjectBroadcast::Prepare(std::shared_ptr<const Group> members,
                                                                                RankId rank, Submission* object) {
  TensorRequest& request = object->request;
  const std::string what = absl::StrCat("broadcast_object '", request.name, "'");
  if (!members->Contains(request.root)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": root ", request.root, " is not in process set ",
                                                   request.process_set, ": name one of its ranks"));
  }
  auto plan = std::make_unique<Plan>(
      Plan{.name = request.name, .root = request.root, .members = std::move(members), .contribution = {}});
  const int64_t size = request.shape.front();
  if (request.root == rank) {
    if (size > 0 && object->input == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": data is NULL, but there are ", size, " bytes"));
    }
    plan->contribution.assign(static_cast<const char*>(object->input), static_cast<size_t>(size));
    plan->contribution.push_back('\0');
  }
  object->input = plan->contribution.data();
  request.shape = {static_cast<int64_t>(plan->contribution.size())};
  request.root = 0;  // an allgather has none
  return plan;
}

absl::Status ObjectBroadcast::Check(const OperationResult& result) const {
  const std::vector<int64_t>& sizes = result.first_dims;
  for (int i = 0; i < plan_->members->size(); ++i) {
    const RankId member = (*plan_->members)[i];
    if ((sizes[i] > 0) == (member == plan_->root)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "broadcast_object '", plan_->name, "': root is ", plan_->root, " on this rank, but rank ", member,
        member == plan_->root ? " sent nothing: it has joined, or has another root" : " takes itself for the root",
        "; pass the same root on every rank"));
  }
  return absl::OkStatus();
}

Output ObjectBroadcast::Read(const OperationResult&, Output plain) const {
  --plain.rows;  // the root's additional byte, which is the last
  plain.rows_per_member = {};
  return plain;
}

}  // namespace ronda
