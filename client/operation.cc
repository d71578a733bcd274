#include "client/operation.h"

#include <numeric>
#include <vector>

#include "runtime/base/status_macros.h"

namespace ronda {

absl::Status Operation::Wait() const {
  RONDA_RETURN_IF_ERROR(handle_->Wait());
  return Checked();
}

absl::Status Operation::OrderBefore(void* stream) const {
  RONDA_RETURN_IF_ERROR(handle_->OrderBefore(stream));
  return Checked();
}

absl::Status Operation::Checked() const {
  return interpretation_ == nullptr ? absl::OkStatus() : interpretation_->Check(handle_->result());
}

bool Operation::HasOutput() const {
  switch (op_) {
    case OpType::kAllgather:
    case OpType::kGather:
    case OpType::kScatter:
    case OpType::kReduceScatter:
    case OpType::kAlltoall:
      return true;
    default:
      return false;
  }
}

bool Operation::Reduces() const {
  return op_ == OpType::kAllreduce || op_ == OpType::kReduce || op_ == OpType::kReduceScatter;
}

Output Operation::output() const {
  const OperationResult& result = handle_->result();
  const std::vector<int64_t>& rows = result.first_dims;
  Output output{.data = result.data.get(), .rows = std::accumulate(rows.begin(), rows.end(), int64_t{0})};
  if (op_ != OpType::kScatter && op_ != OpType::kReduceScatter) output.rows_per_member = rows;
  return interpretation_ == nullptr ? output : interpretation_->Read(result, output);
}

}  // namespace ronda
