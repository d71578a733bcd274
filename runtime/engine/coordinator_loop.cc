#include "runtime/engine/coordinator_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/codec.h"

namespace ronda {
namespace {

// The coordinator rank fails a stalled tensor itself; this much later the other ranks conclude that it does not run.
absl::Duration AnswerDeadline(absl::Duration stall_deadline) {
  return stall_deadline + std::max(absl::Seconds(1), stall_deadline / 4);
}

}  // namespace

CoordinatorLoop::CoordinatorLoop(Options options, const Topology& topology, Transport transport)
    : options_(std::move(options)),
      topology_(topology),
      transport_(std::move(transport)),
      reporter_({.rank = topology.rank, .world_size = topology.size, .identity = options_.identity}),
      executor_(transport_.communicator.get(), &queue_),
      answer_deadline_(AnswerDeadline(options_.tunables.stall_deadline)) {
  if (topology_.rank == kCoordinatorRank) role_.emplace(options_.tunables, topology_.size);
}

absl::StatusOr<std::shared_ptr<Handle>> CoordinatorLoop::Submit(Submission submission) {
  RONDA_ASSIGN_OR_RETURN(auto handle, queue_.Add(std::move(submission), options_.clock->Now()));
  transport_.control->Wake();
  return handle;
}

void CoordinatorLoop::RequestShutdown() {
  queue_.Refuse(absl::CancelledError("this rank is shutting down and accepts no tensors any more"));
  shutdown_requested_.store(true);
  transport_.control->Wake();
}

absl::Status CoordinatorLoop::Run() {
  while (true) {
    const absl::StatusOr<Progress> progress = Step();
    if (!progress.ok()) return Fail(progress.status());
    if (*progress == Progress::kJobEnded) return absl::OkStatus();
    if (*progress == Progress::kNone) transport_.control->Wait(NextDeadline(options_.clock->Now()));
  }
}

absl::StatusOr<CoordinatorLoop::Progress> CoordinatorLoop::Step() {
  const absl::Time now = options_.clock->Now();
  RONDA_RETURN_IF_ERROR(ReportFresh(now));
  RONDA_RETURN_IF_ERROR(CheckCoordinatorAnswers(now));
  RONDA_ASSIGN_OR_RETURN(const ControlPlane::Inbox inbox, transport_.control->Receive());
  if (role_) {
    RONDA_RETURN_IF_ERROR(role_->Take(inbox.to_coordinator, now));
    RONDA_RETURN_IF_ERROR(role_->Inspect(now));
    if (const std::string list = role_->TakeBroadcast(); !list.empty()) {
      RONDA_RETURN_IF_ERROR(transport_.control->Broadcast(list));
    }
  }
  for (const std::string& broadcast : inbox.broadcasts) {
    RONDA_ASSIGN_OR_RETURN(const Progress progress, Apply(broadcast));
    if (progress == Progress::kJobEnded) return progress;
  }
  return inbox.to_coordinator.empty() && inbox.broadcasts.empty() ? Progress::kNone : Progress::kSome;
}

absl::Status CoordinatorLoop::ReportFresh(absl::Time now) {
  // Read before the queue is looked at: every submission that was accepted before the request is then found.
  const bool shutting_down = shutdown_requested_.load();
  if (now - queue_.OldestFresh() >= options_.tunables.cycle_time || shutting_down) {
    for (const TensorEntry* entry : queue_.TakeFresh()) reporter_.Submit(entry->submission.request);
  }
  if (shutting_down && leaving_ == Leaving::kNo && queue_.empty()) {
    reporter_.Leave();
    leaving_ = Leaving::kReported;
    leaving_since_ = now;
  }
  if (!reporter_.has_news()) return absl::OkStatus();
  return transport_.control->SendToCoordinator(Encode(reporter_.TakeReport()));
}

absl::StatusOr<CoordinatorLoop::Progress> CoordinatorLoop::Apply(const std::string& broadcast) {
  RONDA_ASSIGN_OR_RETURN(const ResponseList list, DecodeResponseList(broadcast));
  RONDA_ASSIGN_OR_RETURN(const Reporter::Work work, reporter_.Apply(list));
  if (work.settings) answer_deadline_ = AnswerDeadline(work.settings->limits.deadline);
  for (const TensorError& error : work.errors) {
    if (queue_.Find(error.name) == nullptr) {
      return absl::InternalError(
          absl::StrCat("the coordinator rank answers tensor '", error.name, "', which was not submitted on this rank"));
    }
    queue_.Complete(error.name, error.status);
  }
  for (const AgreedBucket& bucket : work.buckets) RONDA_RETURN_IF_ERROR(executor_.Execute(bucket));
  if (work.job == ResponseList::Job::kGoesOn) return Progress::kSome;
  transport_.control->Depart();
  queue_.Close(absl::CancelledError("the job has been shut down"));
  return Progress::kJobEnded;
}

absl::Status CoordinatorLoop::CheckCoordinatorAnswers(absl::Time now) {
  if (role_ || now < next_answer_check_) return absl::OkStatus();
  const TensorEntry* oldest = queue_.Oldest();
  const bool tensor_overdue = oldest != nullptr && now - oldest->since >= answer_deadline_;
  const bool leave_overdue = leaving_ == Leaving::kReported && now - leaving_since_ >= answer_deadline_;
  if (tensor_overdue || leave_overdue) {
    return absl::DeadlineExceededError(absl::StrCat(
        "rank 0, which coordinates the job, has not answered for ", absl::FormatDuration(answer_deadline_),
        " (waiting for ",
        tensor_overdue ? absl::StrCat("tensor '", oldest->submission.request.name, "'") : "the end of the job",
        "): it is stopped, or its machine is overloaded"));
  }
  next_answer_check_ = now + answer_deadline_ / 8;
  return absl::OkStatus();
}

absl::Time CoordinatorLoop::NextDeadline(absl::Time now) const {
  absl::Time next = queue_.OldestFresh() + options_.tunables.cycle_time;
  if (role_) return std::min(next, role_->next_inspection());
  const bool waits = !queue_.empty() || leaving_ == Leaving::kReported;
  return waits ? std::min(next, std::max(now, next_answer_check_)) : next;
}

absl::Status CoordinatorLoop::Fail(const absl::Status& cause) {
  transport_.control->Fail(cause);
  absl::Status failure = transport_.control->failure();
  Log(LogLevel::kError, topology_.rank, failure.message());
  queue_.Close(failure);
  return failure;
}

}  // namespace ronda
