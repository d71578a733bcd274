#include "runtime/engine/answer_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ronda {

absl::Duration AnswerDeadline(const WaitLimits& limits) {
  return limits.deadline + std::max(absl::Seconds(1), limits.deadline / 4);
}

AnswerWatch::AnswerWatch(const TensorQueue* queue, const FlightBoard* flights, WaitLimits limits)
    : queue_(queue), flights_(flights), limits_(limits) {}

void AnswerWatch::set_limits(WaitLimits limits) {
  limits_ = limits;
  next_check_ = absl::InfinitePast();  // what waits may be due earlier than it was
}

void AnswerWatch::Expect(const TensorEntry& entry) { next_check_ = std::min(next_check_, AnswerDue(entry)); }

void AnswerWatch::ExpectEnd(absl::Time now) {
  leaving_since_ = now;
  next_check_ = std::min(next_check_, now + AnswerDeadline(limits_));
}

void AnswerWatch::Heard(absl::Time now) { last_activity_ = now; }

absl::Time AnswerWatch::UnansweredSince(const TensorEntry& entry) const {
  return std::max(entry.taken, last_activity_);
}

absl::Time AnswerWatch::AnswerDue(const TensorEntry& entry) const {
  return UnansweredSince(entry) + AnswerDeadline(entry.submission.request.limits.value_or(limits_));
}

absl::Status AnswerWatch::Check(absl::Time now) {
  if (now < next_check_) return absl::OkStatus();
  const TensorEntry* first = queue_->Earliest([&](const TensorEntry& entry) { return AnswerDue(entry); });
  const absl::Time tensor_due = first == nullptr ? absl::InfiniteFuture() : AnswerDue(*first);
  next_check_ = std::min(tensor_due, leaving_since_ + AnswerDeadline(limits_));
  if (now < next_check_) return absl::OkStatus();
  const absl::Time since = tensor_due <= now ? UnansweredSince(*first) : leaving_since_;
  return absl::DeadlineExceededError(absl::StrCat(
      "rank 0, which coordinates the job, has not answered for ", absl::FormatDuration(now - since), " (waiting for ",
      tensor_due <= now ? absl::StrCat("tensor '", first->submission.request.name, "'") : "the end of the job",
      "): it is stopped, or its machine is overloaded; it ", DescribeLastAct(flights_->Of(kCoordinatorRank))));
}

}  // namespace ronda
