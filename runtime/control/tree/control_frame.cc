// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/tree/control_frame.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/control.pb.h"
#include "runtime/base/group.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The longest text of a failure. It contains a tensor's name and the descriptions of two ranks.
constexpr size_t kMaxFailureText = size_t{64} << 10;

// The greatest age of an event. No job runs longer. With this limit, sums and differences of ages cannot overflow.
constexpr absl::Duration kMaxAge = absl::Hours(24 * 3650);

absl::Status Damaged(absl::string_view text) { return absl::InvalidArgumentError(absl::StrCat("control: ", text)); }

void Put(const ArrivalFrame& frame, v1::ControlFrame& message) {
  v1::ControlArrival& arrival = *message.mutable_arrival();
  for (const RankId number : ToRuns(frame.ranks)) arrival.add_ranks(number);
}

void Put(const StartFrame&, v1::ControlFrame& message) { message.mutable_start(); }

void Put(const ReportsFrame& frame, v1::ControlFrame& message) {
  v1::ControlReports& reports = *message.mutable_reports();
  for (const SharedReport& report : frame.reports) {
    v1::ControlReport& entry = *reports.add_reports();
    entry.set_payload(report.payload);
    for (const RankId number : ToRuns(report.ranks)) entry.add_ranks(number);
  }
}

void Put(const BroadcastFrame& frame, v1::ControlFrame& message) { message.set_broadcast(frame.payload); }

void Put(const UnlockRequestFrame& frame, v1::ControlFrame& message) { message.set_unlock_request(frame.schedule); }

void Put(const FailureFrame& frame, v1::ControlFrame& message) {
  v1::ControlFailure& failure = *message.mutable_failure();
  failure.set_code(static_cast<int>(frame.failure.code()));
  failure.set_text(std::string(frame.failure.message().substr(0, kMaxFailureText)));
}

void Put(const DepartureFrame&, v1::ControlFrame& message) { message.mutable_departure(); }

void Put(const ExitFrame&, v1::ControlFrame& message) { message.mutable_exit(); }

void Put(const HeartbeatFrame& frame, v1::ControlFrame& message) {
  v1::ControlHeartbeat& heartbeat = *message.mutable_heartbeat();
  for (const RankEvent& event : frame.events) {
    v1::ControlEvent& entry = *heartbeat.add_events();
    entry.set_rank(event.rank);
    entry.set_kind(static_cast<int>(event.kind));
    entry.set_op(static_cast<int>(event.op));
    entry.set_name(event.name);
    entry.set_bytes(event.bytes);
    entry.set_age_ms(absl::ToInt64Milliseconds(event.age));
  }
}

// Decodes a list of ranks. Returns an error unless the ranks are in the job and in ascending order.
template <typename Runs>
absl::StatusOr<std::vector<RankId>> DecodeRanks(const Runs& runs, int size) {
  std::optional<std::vector<RankId>> ranks = FromRuns<RankId>(runs, size);
  if (!ranks.has_value() || ranks->empty()) return Damaged("ranks are no runs");
  const bool ascending = std::adjacent_find(ranks->begin(), ranks->end(), std::greater_equal<>()) == ranks->end();
  if (!ascending || ranks->back() >= size) return Damaged("ranks are not ascending, or not in the job");
  return *std::move(ranks);
}

absl::StatusOr<ControlFrame> DecodeArrival(const v1::ControlArrival& arrival, int size) {
  RONDA_ASSIGN_OR_RETURN(std::vector<RankId> ranks, DecodeRanks(arrival.ranks(), size));
  return ArrivalFrame{.ranks = std::move(ranks)};
}

absl::StatusOr<ControlFrame> DecodeReports(v1::ControlReports& reports, int size) {
  ReportsFrame frame;
  for (v1::ControlReport& report : *reports.mutable_reports()) {
    RONDA_ASSIGN_OR_RETURN(std::vector<RankId> ranks, DecodeRanks(report.ranks(), size));
    frame.reports.push_back({.payload = std::move(*report.mutable_payload()), .ranks = std::move(ranks)});
  }
  return frame;
}

absl::StatusOr<ControlFrame> DecodeFailure(const v1::ControlFailure& failure) {
  if (failure.code() < static_cast<int>(absl::StatusCode::kCancelled) ||
      failure.code() > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return Damaged(absl::StrCat("failure.code is ", failure.code()));
  }
  if (failure.text().size() > kMaxFailureText) return Damaged("failure.text is too long");
  return FailureFrame{absl::Status(static_cast<absl::StatusCode>(failure.code()), failure.text())};
}

absl::StatusOr<RankEvent> DecodeEvent(const v1::ControlEvent& event, int size) {
  const std::optional<OpType> op = OpTypeFromInt(event.op());
  if (!op.has_value()) return Damaged(absl::StrCat("event.op is ", event.op()));
  if (event.rank() < 0 || event.rank() >= size) return Damaged(absl::StrCat("event.rank is ", event.rank()));
  if (event.kind() < 1 || event.kind() > kLastFlightKind) return Damaged(absl::StrCat("event.kind is ", event.kind()));
  if (event.name().size() > FlightRecorder::kNameBytes) return Damaged("event.name is too long");
  if (event.age_ms() < 0 || absl::Milliseconds(event.age_ms()) > kMaxAge) {
    return Damaged(absl::StrCat("event.age_ms is ", event.age_ms()));
  }
  return RankEvent{.rank = event.rank(),
                   .kind = static_cast<FlightKind>(event.kind()),
                   .op = *op,
                   .name = event.name(),
                   .bytes = event.bytes(),
                   .age = absl::Milliseconds(event.age_ms())};
}

absl::StatusOr<ControlFrame> DecodeHeartbeat(const v1::ControlHeartbeat& heartbeat, int size) {
  HeartbeatFrame frame;
  for (const v1::ControlEvent& entry : heartbeat.events()) {
    RONDA_ASSIGN_OR_RETURN(RankEvent event, DecodeEvent(entry, size));
    frame.events.push_back(std::move(event));
  }
  return frame;
}

}  // namespace

uint64_t ReportBatch::Earliest(const std::vector<RankId>& ranks) const {
  uint64_t earliest = first_number_;
  for (const RankId rank : ranks) {
    const auto last = last_of_rank_.find(rank);
    if (last != last_of_rank_.end()) earliest = std::max(earliest, last->second + 1);
  }
  return earliest;
}

void ReportBatch::Add(SharedReport report) {
  const auto equal = last_of_payload_.find(report.payload);
  const bool joins = equal != last_of_payload_.end() && equal->second >= Earliest(report.ranks);
  const uint64_t number = joins ? equal->second : next_number();
  for (const RankId rank : report.ranks) last_of_rank_[rank] = number;
  if (joins) {
    std::vector<RankId>& ranks = reports_[number - first_number_].ranks;
    ranks.insert(ranks.end(), report.ranks.begin(), report.ranks.end());
    return;
  }
  if (equal != last_of_payload_.end()) last_of_payload_.erase(equal);
  reports_.push_back(std::move(report));
  last_of_payload_[reports_.back().payload] = number;
}

SharedReport ReportBatch::PopFront() {
  SharedReport& front = reports_.front();
  const auto last = last_of_payload_.find(front.payload);
  if (last != last_of_payload_.end() && last->second == first_number_) last_of_payload_.erase(last);
  SharedReport taken = std::move(front);
  reports_.pop_front();
  ++first_number_;
  std::sort(taken.ranks.begin(), taken.ranks.end());
  return taken;
}

std::vector<SharedReport> ReportBatch::Take(size_t max_bytes) {
  std::vector<SharedReport> taken;
  size_t bytes = 0;
  while (!reports_.empty()) {
    bytes += reports_.front().payload.size();
    if (!taken.empty() && bytes > max_bytes) break;
    taken.push_back(PopFront());
  }
  return taken;
}

std::string Encode(const ControlFrame& frame) {
  v1::ControlFrame message;
  std::visit([&](const auto& content) { Put(content, message); }, frame);
  return message.SerializeAsString();
}

absl::StatusOr<ControlFrame> DecodeControlFrame(absl::string_view bytes, int size) {
  v1::ControlFrame message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Damaged("not a frame");
  switch (message.content_case()) {
    case v1::ControlFrame::kArrival:
      return DecodeArrival(message.arrival(), size);
    case v1::ControlFrame::kStart:
      return StartFrame{};
    case v1::ControlFrame::kReports:
      return DecodeReports(*message.mutable_reports(), size);
    case v1::ControlFrame::kBroadcast:
      return BroadcastFrame{.payload = std::move(*message.mutable_broadcast())};
    case v1::ControlFrame::kUnlockRequest:
      return UnlockRequestFrame{.schedule = message.unlock_request()};
    case v1::ControlFrame::kFailure:
      return DecodeFailure(message.failure());
    case v1::ControlFrame::kDeparture:
      return DepartureFrame{};
    case v1::ControlFrame::kExit:
      return ExitFrame{};
    case v1::ControlFrame::kHeartbeat:
      return DecodeHeartbeat(message.heartbeat(), size);
    case v1::ControlFrame::CONTENT_NOT_SET:
      break;
  }
  return Damaged("a frame without content");
}

}  // namespace ronda
