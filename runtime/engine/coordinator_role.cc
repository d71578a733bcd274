#include "runtime/engine/coordinator_role.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/codec.h"

namespace ronda {

CoordinatorRole::CoordinatorRole(const Tunables& tunables, int world_size, std::shared_ptr<FlightBoard> flights)
    : negotiator_({.world_size = world_size,
                   .cache_capacity = tunables.cache_capacity,
                   .limits = {.warning = tunables.stall_warning, .deadline = tunables.stall_deadline},
                   .fusion = {.threshold = tunables.fusion_threshold}}),
      inspector_(
          {.last_act = [flights = std::move(flights)](RankId rank) { return DescribeLastAct(flights->Of(rank)); }}),
      settings_({.cache_capacity = tunables.cache_capacity,
                 .limits = {.warning = tunables.stall_warning, .deadline = tunables.stall_deadline}}) {}

absl::Status CoordinatorRole::Take(const std::vector<ControlMessage>& reports, absl::Time now) {
  for (const ControlMessage& message : reports) {
    absl::StatusOr<RankReport> report = DecodeRankReport(message.payload);
    absl::Status status = report.status();
    if (report.ok()) status = negotiator_.Add(message.from, *std::move(report), now);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("report of ", negotiator_.Describe(message.from), ": ", status.message()));
    }
  }
  next_inspection_ = std::min(next_inspection_, inspector_.NextInspection(negotiator_, now));
  return absl::OkStatus();
}

absl::Status CoordinatorRole::Inspect(absl::Time now) {
  if (now < next_inspection_) return absl::OkStatus();
  for (StallInspector::Finding& finding : inspector_.Inspect(negotiator_, now)) {
    Log(LogLevel::kWarning, kCoordinatorRank, finding.text);
    if (finding.verdict == StallInspector::Finding::Verdict::kWarn) continue;
    const absl::Status expired = absl::DeadlineExceededError(finding.text);
    if (finding.tensor.name.empty()) return expired;
    negotiator_.Fail(finding.tensor, expired);
  }
  next_inspection_ = inspector_.NextInspection(negotiator_, now);
  return absl::OkStatus();
}

std::string CoordinatorRole::TakeBroadcast() {
  ResponseList list = negotiator_.TakeResponses();
  list.settings = std::exchange(settings_, std::nullopt);
  return list.empty() ? "" : Encode(list);
}

}  // namespace ronda
