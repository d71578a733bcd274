// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/coordinator_role.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/messages.h"

namespace ronda {
namespace {

std::unique_ptr<TuningRole> MakeTuning(const Tunables& tunables, const Negotiator::Options& options) {
  if (tunables.autotune == Tunables::Autotune::kOff) return nullptr;
  return std::make_unique<TuningRole>(
      TuningRole::Options{.defaults = {.fusion_threshold = options.fusion.threshold,
                                       .min_bucket_bytes = options.schedule.min_bucket_bytes,
                                       .chunk_bytes = tunables.chunk_bytes,
                                       .cycle_time = tunables.cycle_time},
                          .rounds_per_sample = tunables.autotune_steps_per_sample,
                          .log_path = tunables.autotune_log});
}

}  // namespace

WaitLimits LimitsOf(const Tunables& tunables) {
  return {.warning = tunables.stall_warning, .deadline = tunables.stall_deadline};
}

CoordinatorRole::CoordinatorRole(const Tunables& tunables, int world_size, std::shared_ptr<FlightBoard> flights,
                                 TensorLog* log)
    : options_({.world_size = world_size,
                .cache_capacity = tunables.cache_capacity,
                .limits = LimitsOf(tunables),
                .fusion = {.threshold = tunables.fusion_threshold},
                .schedule = {.identical_steps = tunables.lock_after, .min_bucket_bytes = tunables.min_bucket_bytes}}),
      recording_path_(tunables.negotiation_log),
      log_(log),
      on_ready_([log](RankId rank, const TensorRequest& request) { log->Ready(rank, request); }),
      negotiator_(options_),
      inspector_({.last_activity =
                      [flights = std::move(flights)](RankId rank) { return DescribeLastEvent(flights->Of(rank)); }}),
      deadlocks_(world_size),
      settings_({.cache_capacity = tunables.cache_capacity,
                 .limits = LimitsOf(tunables),
                 .cycle_time = tunables.cycle_time,
                 .chunk_bytes = tunables.chunk_bytes}),
      tuning_(MakeTuning(tunables, options_)) {}

absl::Status CoordinatorRole::Start() {
  if (tuning_ != nullptr) RONDA_RETURN_IF_ERROR(tuning_->Start());
  if (recording_path_.empty()) return absl::OkStatus();
  auto recording = RecordingFile::Create(recording_path_, options_);
  if (!recording.ok()) {
    return absl::Status(recording.status().code(),
                        absl::StrCat("RONDA_NEGOTIATION_LOG: ", recording.status().message()));
  }
  recording_ = *std::move(recording);
  return absl::OkStatus();
}

void CoordinatorRole::Record(const NegotiationEvent& event) {
  const absl::Status status = recording_->Append(event);
  if (status.ok()) return;
  Log(LogLevel::kWarning, kCoordinatorRank, absl::StrCat(status.message(), ": it ends here"));
  recording_.reset();
}

absl::Status CoordinatorRole::Receive(const std::vector<ControlMessage>& reports, absl::Time now) {
  for (const ControlMessage& message : reports) {
    const absl::Status status = ReceiveOne(message, now);
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat("report of ", negotiator_.Describe(message.from), ": ", status.message()));
  }
  WarnOfDeadlock();
  next_inspection_ = std::min(next_inspection_, inspector_.NextInspection(negotiator_.waiting(), now));
  return absl::OkStatus();
}

void CoordinatorRole::WarnOfDeadlock() {
  if (options_.limits.warning == absl::InfiniteDuration()) return;
  const std::string deadlock = deadlocks_.Inspect(negotiator_.waiting());
  if (!deadlock.empty()) Log(LogLevel::kWarning, kCoordinatorRank, deadlock);
}

absl::Status CoordinatorRole::ReceiveOne(const ControlMessage& message, absl::Time now) {
  if (recording_ != nullptr) Record(NegotiationEvent::Report(message.from, message.payload, now));
  RONDA_ASSIGN_OR_RETURN(const RankReport report, DecodeRankReport(message.payload, options_.cache_capacity));
  deadlocks_.Record(message.from, report.program);
  const bool is_drawn = log_ != nullptr && log_->IsDrawn();
  return negotiator_.Add(message.from, report, now, is_drawn ? &on_ready_ : nullptr);
}

absl::Status CoordinatorRole::Inspect(absl::Time now) {
  if (now < next_inspection_) return absl::OkStatus();
  for (StallInspector::Finding& finding : inspector_.Inspect(negotiator_.waiting(), now)) {
    Log(LogLevel::kWarning, kCoordinatorRank, finding.text);
    if (finding.verdict == StallInspector::Finding::Verdict::kWarn) continue;
    const absl::Status expired = absl::DeadlineExceededError(finding.text);
    if (finding.tensor.name.empty()) return expired;
    if (recording_ != nullptr) Record(NegotiationEvent::Failure(finding.tensor, expired, now));
    negotiator_.Fail(finding.tensor, expired);
  }
  next_inspection_ = inspector_.NextInspection(negotiator_.waiting(), now);
  return absl::OkStatus();
}

void CoordinatorRole::EndRound(absl::Time now) {
  if (tuning_ != nullptr) tuning_->RoundEnds(now);
}

// The next list carries autotune's settings, and its buckets already have the new sizes.
void CoordinatorRole::Tune(absl::Time now) {
  const std::optional<TunedSettings> tuned = tuning_->TakeSettings();
  if (!tuned) return;
  settings_.cycle_time = tuned->cycle_time;
  settings_.chunk_bytes = tuned->chunk_bytes;
  settings_state_ = Settings::kNew;
  const Negotiator::BucketSizes sizes = {.threshold = tuned->fusion_threshold,
                                         .min_bucket_bytes = tuned->min_bucket_bytes};
  if (recording_ != nullptr) Record(NegotiationEvent::Sizes(sizes, now));
  negotiator_.SetBucketSizes(sizes);
}

void CoordinatorRole::Unlock(ScheduleProgress progress, absl::Time now) {
  // A schedule that autotune ends counts as one that has lasted long: the training steps have not changed, so the next
  // schedule must not be delayed.
  if (wants_to_unlock()) progress.rounds = std::numeric_limits<uint64_t>::max();
  if (recording_ != nullptr) Record(NegotiationEvent::Unlock(progress, now));
  negotiator_.Unlock(progress);
}

std::string CoordinatorRole::TakeBroadcast(absl::Time now) {
  if (wants_to_unlock() && !negotiator_.locked()) Tune(now);
  ResponseList list = negotiator_.TakeResponses();
  if (tuning_ != nullptr && !list.buckets.empty()) tuning_->Negotiated(now);
  if (tuning_ != nullptr && list.schedule) tuning_->ScheduleBegins(now);
  if (std::exchange(settings_state_, Settings::kSent) == Settings::kNew) list.settings = settings_;
  if (list.empty()) return "";
  deadlocks_.RecordDecisions();
  std::string bytes = Encode(list);
  if (recording_ != nullptr) Record(NegotiationEvent::List(bytes, now));
  return bytes;
}

AnswerWatch::AnswerWatch(const TensorQueue* queue, const FlightBoard* flights, WaitLimits limits)
    : queue_(queue), flights_(flights), limits_(limits) {}

void AnswerWatch::set_limits(WaitLimits limits) {
  limits_ = limits;
  next_check_ = absl::InfinitePast();  // answers may now be due earlier
}

void AnswerWatch::Expect(const TensorEntry& entry) { next_check_ = std::min(next_check_, AnswerDue(entry)); }

void AnswerWatch::ExpectEnd(absl::Time now) {
  shut_down_since_ = now;
  next_check_ = std::min(next_check_, now + AnswerDeadline(limits_));
}

void AnswerWatch::Heard(absl::Time now) { last_activity_ = now; }

absl::Time AnswerWatch::UnansweredSince(const TensorEntry& entry) const {
  return std::max(entry.popped, last_activity_);
}

absl::Time AnswerWatch::AnswerDue(const TensorEntry& entry) const {
  return UnansweredSince(entry) + AnswerDeadline(entry.submission.request.limits.value_or(limits_));
}

absl::Status AnswerWatch::Check(absl::Time now) {
  if (now < next_check_) return absl::OkStatus();
  const TensorEntry* first = queue_->Earliest([&](const TensorEntry& entry) { return AnswerDue(entry); });
  const absl::Time tensor_due = first == nullptr ? absl::InfiniteFuture() : AnswerDue(*first);
  next_check_ = std::min(tensor_due, shut_down_since_ + AnswerDeadline(limits_));
  if (now < next_check_) return absl::OkStatus();
  const absl::Time since = tensor_due <= now ? UnansweredSince(*first) : shut_down_since_;
  // The coordinator itself enforces deadlines, so this rank gives it some more time.
  const WaitLimits limits = tensor_due <= now ? first->submission.request.limits.value_or(limits_) : limits_;
  return absl::DeadlineExceededError(absl::StrCat(
      "rank 0, which coordinates the job, has not answered for ", absl::FormatDuration(now - since),
      ", and the deadline is ", absl::FormatDuration(limits.deadline), " (waiting for ",
      tensor_due <= now ? absl::StrCat("tensor '", first->submission.request.name, "'") : "the end of the job",
      "): it is stopped, or its machine is overloaded; it ", DescribeLastEvent(flights_->Of(kCoordinatorRank))));
}

}  // namespace ronda
