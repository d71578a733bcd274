// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/coordination_loop.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/messages.h"

namespace ronda {
namespace {

// If the program waits for a tensor, and has neither submitted a tensor nor got a result for this long, the rank
// reports to the coordinator that the program waits.
constexpr absl::Duration kQuiet = absl::Seconds(1);

std::string Identity(const Topology& topology) { return absl::StrCat("host ", topology.hostname, ", pid ", getpid()); }

std::unique_ptr<CoordinatorRole> MakeRole(const CoordinationLoop::Parts& parts) {
  if (parts.topology->rank != kCoordinatorRank) return nullptr;
  return std::make_unique<CoordinatorRole>(*parts.tunables, parts.topology->size, parts.transport->flights, parts.log);
}

}  // namespace

CoordinationLoop::CoordinationLoop(Parts parts)
    : parts_(std::move(parts)),
      cycle_time_(parts_.tunables->cycle_time),
      answers_(parts_.queue, parts_.transport->flights.get(), LimitsOf(*parts_.tunables)),
      reporter_(
          {.rank = parts_.topology->rank, .world_size = parts_.topology->size, .identity = Identity(*parts_.topology)}),
      executor_({.communicator = parts_.transport->communicator.get(),
                 .queue = parts_.queue,
                 .process_sets = parts_.process_sets,
                 .log = parts_.log,
                 .devices = parts_.devices},
                LimitsOf(*parts_.tunables)),
      role_(MakeRole(parts_)),
      schedule_({.control = &control(),
                 .progress = parts_.progress,
                 .queue = parts_.queue,
                 .executor = &executor_,
                 .role = role_.get(),
                 .log = parts_.log,
                 .counters = &parts_.meter->counters()}),
      lists_({.rank = parts_.topology->rank,
              .reporter = &reporter_,
              .executor = &executor_,
              .queue = parts_.queue,
              .log = parts_.log,
              .counters = &parts_.meter->counters(),
              .apply_settings = [this](const JobSettings& settings) { ApplySettings(settings); }}) {}

absl::StatusOr<CoordinationLoop::Progress> CoordinationLoop::Step() {
  if (role_ && !std::exchange(has_started_, true)) RONDA_RETURN_IF_ERROR(role_->Start());
  parts_.meter->counters().exposed_nanoseconds.Set(parts_.progress->exposed_ticks());
  if (HasRequest(parts_.meter->request())) {
    AnswerRequest(parts_.carry_out_request, &parts_.meter->request());
  }
  // The coordinator sends a list only after it has unlocked the schedule, so this rank also unlocks the schedule before
  // it carries out the list.
  if (lists_.has_waiting()) schedule_.VetoNext();
  // Lists come before the schedule, because the coordinator must finish its lists before it receives reports again.
  if (lists_.has_begun() || (lists_.has_waiting() && !schedule_.locked())) return FollowList();
  const absl::Time now = parts_.clock->Now();
  RONDA_RETURN_IF_ERROR(ReportFresh(now));
  if (schedule_.locked()) {
    RONDA_ASSIGN_OR_RETURN(const Progress progress, FollowSchedule(now));
    if (progress != Progress::kNone) return progress;
  }
  return Listen(now);
}

CoordinationLoop::Progress CoordinationLoop::OnSubmission(absl::Time now) {
  if (!schedule_.locked() || lists_.has_begun()) return Progress::kNone;
  const size_t flags_before = schedule_.flags();
  const size_t fresh = HandOverFresh(now);
  schedule_.CheckWaits(now);
  return fresh > 0 && schedule_.flags() == flags_before + fresh ? Progress::kSome : Progress::kNone;
}

absl::StatusOr<CoordinationLoop::Progress> CoordinationLoop::FollowSchedule(absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(const std::optional<Ballot::Result> result, schedule_.RunNext(now));
  if (!result) return Progress::kNone;
  if (*result == Ballot::Result::kVetoed) {
    const absl::Time unlocked = parts_.clock->Now();
    answers_.Heard(unlocked);
    if (schedule_.did_not_fit()) reporter_.RecordThatScheduleDidNotFit();
    ReportWhatWaited(unlocked);
  }
  return Progress::kSome;
}

absl::StatusOr<CoordinationLoop::Progress> CoordinationLoop::FollowList() {
  RONDA_ASSIGN_OR_RETURN(std::optional<ListRunner::End> end, lists_.RunNext());
  if (!end) return Progress::kSome;
  const absl::Time now = parts_.clock->Now();
  answers_.Heard(now);
  look_at_program_ = now + kQuiet;
  if (end->schedule) {
    parts_.meter->counters().schedules_begun.Add();
    schedule_.Begin(*std::move(end->schedule), now);
    ReportAnew();
  }
  return end->job == ResponseList::Job::kGoesOn ? Progress::kSome : Progress::kOver;
}

void CoordinationLoop::ApplySettings(const JobSettings& settings) {
  executor_.set_limits(settings.limits);
  answers_.set_limits(settings.limits);
  cycle_time_ = settings.cycle_time;
  parts_.transport->communicator->Tune({.chunk_bytes = settings.chunk_bytes});
}

absl::Status CoordinationLoop::ReportFresh(absl::Time now) {
  // The shutdown flag is read before the queue, so that the loop finds every submission that was accepted before the
  // shutdown request.
  const bool shutting_down = parts_.shutdown_requested->load();
  if (shutting_down || schedule_.locked() || now - parts_.queue->OldestFresh() >= cycle_time_) {
    HandOverFresh(now);
  }
  if (shutting_down) ShutDownIfDone(now);
  if (schedule_.locked()) return absl::OkStatus();
  if (now >= NextLookAtProgram()) LookAtProgram(now);
  if (!reporter_.has_news()) return absl::OkStatus();
  parts_.meter->counters().reports_sent.Add();
  return control().SendToCoordinator(Encode(reporter_.TakeReport()));
}

absl::Time CoordinationLoop::NextLookAtProgram() const {
  return parts_.queue->empty() ? absl::InfiniteFuture() : look_at_program_;
}

// While a callback runs or a device has work, the program does not count as waiting: the callback may submit a tensor,
// and another thread may wait for the device.
void CoordinationLoop::LookAtProgram(absl::Time now) {
  const bool waits = parts_.progress->waiting() > 0 && parts_.callbacks->idle() && parts_.devices->idle();
  reporter_.RecordProgram(waits ? RankReport::Program::kWaits : RankReport::Program::kRuns);
  look_at_program_ = now + kQuiet;
}

size_t CoordinationLoop::HandOverFresh(absl::Time now) {
  const std::vector<TensorEntry*>& fresh = parts_.queue->HandOverFresh(now);
  for (TensorEntry* entry : fresh) Report(*entry);
  return fresh.size();
}

void CoordinationLoop::ShutDownIfDone(absl::Time now) {
  // Unlocks the schedule, because a tensor in flight may be in a bucket that will never be complete.
  schedule_.VetoNext();
  if (departure_ == Departure::kReported) return;
  if (!parts_.queue->has_only_removals()) return Drain();
  // The devices are checked first, because the end of a device's work may start callbacks.
  if (!parts_.devices->idle() || !parts_.callbacks->idle()) return;
  reporter_.ShutDown();
  departure_ = Departure::kReported;
  answers_.ExpectEnd(now);
}

// Without this report, other ranks may wait for tensors that this rank will never submit, while this rank waits for
// those ranks in its own operations.
void CoordinationLoop::Drain() {
  if (departure_ != Departure::kNotYet || parts_.queue->has_followers()) return;
  reporter_.Drain();
  departure_ = Departure::kDraining;
}

void CoordinationLoop::Report(TensorEntry& entry) {
  if (schedule_.SubmitAgain(entry)) return;
  if (schedule_.locked() && schedule_.SubmitFlag(entry)) return;
  const TensorRequest& request = entry.submission.request;
  if (reporter_.process_sets().Find(request.process_set) == nullptr) {
    return parts_.queue->Complete(
        &entry, absl::FailedPreconditionError(
                    absl::StrCat("tensor '", request.name, "': process set ", request.process_set, " was removed")));
  }
  reporter_.RecordCompletions(entry.learned_of);
  if (schedule_.locked()) return schedule_.Submit(entry, reporter_.Find(request));
  reporter_.Submit(request);
  look_at_program_ = entry.popped + kQuiet;
  entry.reported = parts_.log->Reported(request);
  answers_.Expect(entry);
}

void CoordinationLoop::ReportAnew() {
  for (TensorEntry* entry : parts_.queue->HandedOver()) Report(*entry);
}

// Submissions that have arrived meanwhile are reported together with the earlier ones. A report states one age for all
// of its tensors, and deadlines count from the submission.
void CoordinationLoop::ReportWhatWaited(absl::Time now) {
  static_cast<void>(parts_.queue->HandOverFresh(now));  // so that HandedOver() includes them
  absl::Time newest = absl::InfinitePast();
  for (const TensorEntry* entry : parts_.queue->HandedOver()) newest = std::max(newest, entry->since);
  if (newest < now && newest != absl::InfinitePast()) reporter_.SetAge(now - newest);
  ReportAnew();
}

absl::StatusOr<CoordinationLoop::Progress> CoordinationLoop::Listen(absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(ControlPlane::Inbox inbox, control().Receive());
  parts_.meter->counters().reports_received.Add(inbox.to_coordinator.size());
  parts_.meter->counters().lists_received.Add(inbox.broadcasts.size());
  std::move(inbox.to_coordinator.begin(), inbox.to_coordinator.end(), std::back_inserter(reports_));
  for (std::string& list : inbox.broadcasts) lists_.Add(std::move(list));
  if (schedule_.RecordUnlockRequest(inbox.unlock_requested)) return Progress::kSome;
  if (role_) RONDA_RETURN_IF_ERROR(Coordinate(now));
  if (!inbox.to_coordinator.empty() || lists_.has_waiting()) return Progress::kSome;
  // The loop checks for answers only after it has read the inbox: if this rank was stopped for long, its answers are in
  // the inbox.
  if (!role_ && !schedule_.locked()) RONDA_RETURN_IF_ERROR(answers_.Check(now));
  return Progress::kNone;
}

absl::Status CoordinationLoop::Coordinate(absl::Time now) {
  // Another rank may leave the schedule and report while this rank still follows the schedule, or has not even begun
  // it. The report can wait until this rank has left the schedule.
  if (role_->locked()) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(role_->Receive(reports_, now));
  reports_.clear();
  RONDA_RETURN_IF_ERROR(role_->Inspect(now));
  const std::string list = role_->TakeBroadcast(now);
  if (list.empty()) return absl::OkStatus();
  parts_.meter->counters().lists_sent.Add();
  return control().Broadcast(list);
}

absl::Time CoordinationLoop::NextDeadline() const {
  if (lists_.has_begun() || lists_.has_waiting()) return absl::InfinitePast();
  const absl::Time fresh = parts_.queue->OldestFresh();
  if (schedule_.ready()) return absl::InfinitePast();
  if (schedule_.locked()) return std::min(fresh, schedule_.NextDeadline());
  const absl::Time look = role_ ? role_->next_inspection() : answers_.next_check();
  return std::min({fresh + cycle_time_, look, NextLookAtProgram()});
}

}  // namespace ronda
