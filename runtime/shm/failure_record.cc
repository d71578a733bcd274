#include "runtime/shm/failure_record.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"

namespace ronda {

bool FailureRecord::Set(RankId writer, const absl::Status& failure) { return SetFrom(kEmpty, writer, failure); }

bool FailureRecord::SetAfterDeathOf(RankId dead, RankId writer, const absl::Status& failure) {
  return SetFrom(kEmpty, writer, failure) || SetFrom(WrittenBy(dead), writer, failure);
}

bool FailureRecord::SetFrom(uint32_t expected, RankId writer, const absl::Status& failure) {
  if (!state_.compare_exchange_strong(expected, WrittenBy(writer), std::memory_order_acq_rel)) return false;
  const absl::string_view text = failure.message();
  code_ = static_cast<uint32_t>(failure.code());
  text_bytes_ = static_cast<uint32_t>(std::min<size_t>(text.size(), kTextBytes));
  std::memcpy(text_, text.data(), text_bytes_);
  state_.store(kWritten, std::memory_order_release);
  return true;
}

absl::Status FailureRecord::Get() const {
  if (!IsSet()) return absl::OkStatus();
  const bool code_is_known = code_ > static_cast<uint32_t>(absl::StatusCode::kOk) &&
                             code_ <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  if (!code_is_known || text_bytes_ > kTextBytes) {
    return absl::InternalError("the job failed, and its failure record in shared memory is damaged");
  }
  return absl::Status(static_cast<absl::StatusCode>(code_), absl::string_view(text_, text_bytes_));
}

}  // namespace ronda
