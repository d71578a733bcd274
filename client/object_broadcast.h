#ifndef RONDA_CLIENT_OBJECT_BROADCAST_H_
#define RONDA_CLIENT_OBJECT_BROADCAST_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/operation.h"
#include "runtime/base/group.h"
#include "runtime/engine/submission.h"

namespace ronda {

// Bytes of the root's, when the other ranks do not know how many there are: an allgather to which only the root
// contributes. The root adds one byte, so that all ranks see who takes itself for the root even if the object is empty.
//
// Thread-safe.
class ObjectBroadcast : public Interpretation {
 public:
  // What one rank knows. It owns the bytes that travel, and so has to outlive the operation.
  struct Plan {
    std::string name;
    RankId root = 0;
    std::shared_ptr<const Group> members;
    std::string contribution;
  };

  // Makes `object`, the caller's bytes and root, what has to be submitted on `rank`.
  // Errors: INVALID_ARGUMENT if the root is not one of `members`, or the bytes of the root are null.
  static absl::StatusOr<std::unique_ptr<Plan>> Prepare(std::shared_ptr<const Group> members, RankId rank,
                                                       Submission* object);

  // `handle` is that of the submission that `plan` was made with.
  ObjectBroadcast(std::shared_ptr<Handle> handle, std::shared_ptr<const Plan> plan)
      : handle_(std::move(handle)), plan_(std::move(plan)) {}

  // Waits: the contribution must not go before.
  ~ObjectBroadcast() override { handle_->Wait().IgnoreError(); }

  // The operation of a submission that `plan` was made with.
  static Operation Of(const std::shared_ptr<Handle>& handle, std::shared_ptr<const Plan> plan) {
    return Operation(handle, OpType::kAllgather, std::make_shared<ObjectBroadcast>(handle, std::move(plan)));
  }

  // Errors: FAILED_PRECONDITION if another rank takes itself for the root, or the root does not.
  absl::Status Check(const OperationResult& result) const override;

  Output Read(const OperationResult& result, Output plain) const override;

 private:
  const std::shared_ptr<Handle> handle_;
  const std::shared_ptr<const Plan> plan_;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_OBJECT_BROADCAST_H_
