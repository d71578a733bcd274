// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/wait_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

std::string DescribeWait(const Peer& late, const RunningCollective& running) {
  return absl::StrCat(ToString(late), " in ", Name(running.op), " '", running.label, "', ", running.bytes_done, " of ",
                      running.bytes_total, " bytes done");
}

WaitWatch::WaitWatch(const RunningCollective& running, const FlightBoard& flights)
    : running_(running), flights_(flights), start_(MonotonicTime()) {}

absl::Status WaitWatch::Check(const Peer& late) {
  const absl::Duration waited = MonotonicTime() - start_;
  if (waited >= running_.limits.deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat("waited ", absl::FormatDuration(running_.limits.deadline), " for ", Report(late)));
  }
  if (waited >= running_.limits.warning && !has_warned_) {
    has_warned_ = true;
    // Tells ranks that wait for this rank that it is waiting too.
    flights_.Of(running_.self).Record(FlightKind::kWaiting, running_.op, running_.label, running_.bytes_total);
    Log(LogLevel::kWarning, running_.self,
        absl::StrCat("has waited ", absl::FormatDuration(running_.limits.warning), " for ", Report(late)));
  }
  return absl::OkStatus();
}

std::string WaitWatch::Report(const Peer& late) const {
  return absl::StrCat(DescribeWait(late, running_), "; rank ", late.rank, " ",
                      DescribeLastEvent(flights_.Of(late.rank)));
}

absl::Duration WaitWatch::UntilNextCheck() const {
  const absl::Duration next =
      has_warned_ ? running_.limits.deadline : std::min(running_.limits.warning, running_.limits.deadline);
  return std::max(absl::ZeroDuration(), start_ + next - MonotonicTime());
}

}  // namespace ronda
