#include "client/stop_agreement.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"

namespace ronda {

class StopAgreement::Turn {
 public:
  explicit Turn(std::atomic<bool>* in_call)
      : in_call_(*in_call), has_turn_(!in_call->exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (has_turn_) in_call_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool has_turn() const { return has_turn_; }

 private:
  std::atomic<bool>& in_call_;
  const bool has_turn_;
};

StopAgreement::StopAgreement()
    : submission_{.request = {.name = "ronda/should_stop",
                              .op = OpType::kAllreduce,
                              .dtype = DType::kUint8,
                              .shape = {1},
                              .reduction = Reduction::kMax},
                  .input = &traveling_,
                  .output = &traveling_} {}

absl::StatusOr<StopAgreement::Request> StopAgreement::Call(const Knowledge& knowledge, SubmitFn submit) {
  const Turn turn(&in_call_);
  if (!turn.has_turn()) {
    return absl::AlreadyExistsError(
        "ronda_should_stop: another thread of this rank is in it: let one thread call it, once a step");
  }
  RONDA_ASSIGN_OR_RETURN(const Request answer, Answer(knowledge.joins));
  known_ = std::max({known_, answer, knowledge.request});
  traveling_ = known_;
  pending_joins_ = knowledge.joins;
  RONDA_ASSIGN_OR_RETURN(pending_, submit(submission_));
  return answer;
}

absl::StatusOr<StopAgreement::Request> StopAgreement::Answer(uint64_t joins) {
  if (pending_ == nullptr) return Request::kNone;
  const std::shared_ptr<Handle> pending = std::move(pending_);
  RONDA_RETURN_IF_ERROR(pending->Wait());
  return joins == pending_joins_ ? traveling_ : Request::kNone;
}

}  // namespace ronda
