#include "runtime/engine/rank_engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/codec.h"

namespace ronda {
namespace {

WaitLimits LimitsOf(const Tunables& tunables) {
  return {.warning = tunables.stall_warning, .deadline = tunables.stall_deadline};
}

}  // namespace

RankEngine::RankEngine(Options options, const Parts& parts)
    : options_(std::move(options)),
      parts_(parts),
      control_(parts.transport->control.get()),
      cycle_time_(options_.tunables.cycle_time),
      answers_(parts.queue, parts.transport->flights.get(), LimitsOf(options_.tunables)),
      reporter_(std::make_unique<Reporter>(Reporter::Options{
          .rank = parts.topology->rank, .world_size = parts.topology->size, .identity = options_.identity})),
      executor_(std::make_unique<Executor>(Executor::Parts{.communicator = parts.transport->communicator.get(),
                                                           .queue = parts.queue,
                                                           .process_sets = parts.process_sets,
                                                           .log = parts.log,
                                                           .devices = parts.devices},
                                           LimitsOf(options_.tunables))),
      role_(parts.topology->rank == kCoordinatorRank
                ? std::make_unique<CoordinatorRole>(options_.tunables, parts.topology->size, parts.transport->flights,
                                                    parts.log)
                : nullptr),
      schedule_({.control = control_,
                 .driver = parts.driver,
                 .queue = parts.queue,
                 .executor = executor_.get(),
                 .reporter = reporter_.get(),
                 .role = role_.get(),
                 .log = parts.log,
                 .counters = &counters_}) {}

absl::StatusOr<RankEngine::Progress> RankEngine::Step() {
  if (role_ && !std::exchange(started_, true)) RONDA_RETURN_IF_ERROR(role_->Start());
  // Rank 0 speaks only when it has left the schedule. So does this rank, before it does what the list says.
  if (!lists_.empty()) schedule_.Leave();
  // First: rank 0 must be done with its lists before it listens again.
  if (orders_ || (!lists_.empty() && !schedule_.locked())) return CarryOutNext();
  const absl::Time now = options_.clock->Now();
  RONDA_RETURN_IF_ERROR(ReportFresh(now));
  if (schedule_.locked()) {
    RONDA_ASSIGN_OR_RETURN(const Progress progress, FollowSchedule(now));
    if (progress != Progress::kNone) return progress;
  }
  return Listen(now);
}

absl::StatusOr<RankEngine::Progress> RankEngine::FollowSchedule(absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(const ScheduleRunner::Outcome outcome, schedule_.RunNext(now));
  if (outcome == ScheduleRunner::Outcome::kNotReady) return Progress::kNone;
  if (outcome == ScheduleRunner::Outcome::kLeft) {
    const absl::Time left = options_.clock->Now();
    answers_.Heard(left);
    ReportWhatWaited(left);
  }
  return Progress::kSome;
}

absl::Status RankEngine::ReportFresh(absl::Time now) {
  // Read before the queue is looked at: every submission that was accepted before the request is then found.
  const bool shutting_down = parts_.shutdown_requested->load();
  if (shutting_down || schedule_.locked() || now - parts_.queue->OldestFresh() >= cycle_time_) {
    TakeFresh(now);
  }
  if (shutting_down) LeaveIfDone(now);
  if (!reporter_->has_news()) return absl::OkStatus();
  counters_.reports_sent.Add();
  return control_->SendToCoordinator(Encode(reporter_->TakeReport()));
}

void RankEngine::TakeFresh(absl::Time now) {
  for (const TensorEntry* entry : parts_.queue->TakeFresh(now)) Report(*entry);
}

void RankEngine::TakeNote(absl::Time now) {
  if (!schedule_.locked() || orders_) return;
  TakeFresh(now);
  schedule_.CheckPatience(now);
}

void RankEngine::LeaveIfDone(absl::Time now) {
  // What is in flight may be part of a bucket that will never have the rest.
  schedule_.Leave();
  if (leaving_ != Leaving::kNo || !parts_.queue->empty()) return;
  // In this order: what the device comes to has callbacks.
  if (!parts_.devices->idle() || !parts_.callbacks->idle()) return;
  reporter_->Leave();
  leaving_ = Leaving::kReported;
  answers_.ExpectEnd(now);
}

void RankEngine::Report(const TensorEntry& entry) {
  if (schedule_.SubmitAgain(entry)) return;
  const TensorRequest& request = entry.submission.request;
  if (reporter_->process_sets().Find(request.process_set) == nullptr) {
    parts_.queue->Complete(
        &entry, absl::FailedPreconditionError(
                    absl::StrCat("tensor '", request.name, "': process set ", request.process_set, " was removed")));
    return;
  }
  reporter_->NoteCompletions(entry.learned_of);
  const std::optional<ScheduleLock::Place> place = reporter_->Submit(request);
  if (place) schedule_.Remember(entry, *place);
  if (schedule_.locked()) return;
  parts_.log->Reported(request);
  answers_.Expect(entry);
}

void RankEngine::ReportAnew() {
  for (const TensorEntry* entry : parts_.queue->Taken()) Report(*entry);
}

// Together with what has come meanwhile, so that one age holds for all: deadlines count from the submission.
void RankEngine::ReportWhatWaited(absl::Time now) {
  static_cast<void>(parts_.queue->TakeFresh(now));  // it is among what has been taken, then
  absl::Time newest = absl::InfinitePast();
  for (const TensorEntry* entry : parts_.queue->Taken()) newest = std::max(newest, entry->since);
  if (newest < now && newest != absl::InfinitePast()) reporter_->SetAge(now - newest);
  ReportAnew();
}

absl::StatusOr<RankEngine::Progress> RankEngine::Listen(absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(ControlPlane::Inbox inbox, control_->Receive());
  counters_.reports_received.Add(inbox.to_coordinator.size());
  counters_.lists_received.Add(inbox.broadcasts.size());
  std::move(inbox.to_coordinator.begin(), inbox.to_coordinator.end(), std::back_inserter(reports_));
  std::move(inbox.broadcasts.begin(), inbox.broadcasts.end(), std::back_inserter(lists_));
  if (schedule_.CalledOff(inbox.called_off)) return Progress::kSome;
  if (role_) RONDA_RETURN_IF_ERROR(Coordinate(now));
  if (!inbox.to_coordinator.empty() || !lists_.empty()) return Progress::kSome;
  // Only now: a rank that was stopped for long finds its answers in the inbox.
  if (!role_ && !schedule_.locked()) RONDA_RETURN_IF_ERROR(answers_.Check(now));
  return Progress::kNone;
}

absl::Status RankEngine::Coordinate(absl::Time now) {
  // A rank that has left the schedule may report before this one has, or even before this one has begun it. Its report
  // has time until then.
  if (role_->locked()) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(role_->Take(reports_, now));
  reports_.clear();
  RONDA_RETURN_IF_ERROR(role_->Inspect(now));
  const std::string list = role_->TakeBroadcast(now);
  if (list.empty()) return absl::OkStatus();
  counters_.lists_sent.Add();
  return control_->Broadcast(list);
}

absl::StatusOr<RankEngine::Progress> RankEngine::CarryOutNext() {
  if (!orders_) {
    RONDA_RETURN_IF_ERROR(Begin(lists_.front()));
    lists_.pop_front();
  } else {
    counters_.buckets_agreed.Add();
    RONDA_RETURN_IF_ERROR(executor_->Execute(orders_->work.buckets[orders_->next_bucket++]));
  }
  return orders_->has_buckets() ? Progress::kSome : Conclude();
}

absl::Status RankEngine::Begin(const std::string& list) {
  RONDA_ASSIGN_OR_RETURN(const ResponseList decoded, DecodeResponseList(list));
  RONDA_ASSIGN_OR_RETURN(Reporter::Work work, reporter_->Apply(decoded));
  orders_.emplace(Orders{.work = std::move(work)});
  if (orders_->work.settings) ApplySettings(*orders_->work.settings);
  for (const TensorError& error : orders_->work.errors) RONDA_RETURN_IF_ERROR(Answer(error));
  if (orders_->has_buckets()) parts_.log->Cycled();
  RecordOrders(orders_->work.buckets);
  return absl::OkStatus();
}

void RankEngine::ApplySettings(const JobSettings& settings) {
  executor_->set_limits(settings.limits);
  answers_.set_limits(settings.limits);
  cycle_time_ = settings.cycle_time;
  parts_.transport->communicator->Tune({.chunk_bytes = settings.chunk_bytes});
}

void RankEngine::RecordOrders(const std::vector<AgreedBucket>& buckets) {
  for (const AgreedBucket& bucket : buckets) {
    if (bucket.members->Contains(parts_.topology->rank)) parts_.log->Agreed(bucket);
  }
}

absl::Status RankEngine::Answer(const TensorError& error) {
  const TensorEntry* entry = parts_.queue->Find(error.key());
  if (entry == nullptr) {
    return absl::InternalError(
        absl::StrCat("the coordinator rank answers tensor '", error.name, "', which was not submitted on this rank"));
  }
  parts_.log->Failed(entry->submission.request);
  parts_.queue->Complete(entry, error.status);
  return absl::OkStatus();
}

absl::StatusOr<RankEngine::Progress> RankEngine::Conclude() {
  const ResponseList::Job job = orders_->work.job;
  const bool schedule_begins = orders_->work.schedule_begins;
  orders_.reset();
  answers_.Heard(options_.clock->Now());
  if (schedule_begins) {
    counters_.schedules_begun.Add();
    ReportAnew();
  }
  return job == ResponseList::Job::kGoesOn ? Progress::kSome : Progress::kOver;
}

absl::Time RankEngine::NextDeadline() const {
  if (orders_ || !lists_.empty()) return absl::InfinitePast();
  const absl::Time fresh = parts_.queue->OldestFresh();
  if (schedule_.ready()) return absl::InfinitePast();
  if (schedule_.locked()) return std::min(fresh, schedule_.NextDeadline());
  return std::min(fresh + cycle_time_, role_ ? role_->next_inspection() : answers_.next_check());
}

void RankEngine::AbandonState() {
  static_cast<void>(reporter_.release());
  static_cast<void>(executor_.release());
  static_cast<void>(role_.release());
}

}  // namespace ronda
