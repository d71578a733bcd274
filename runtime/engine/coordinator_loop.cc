#include "runtime/engine/coordinator_loop.h"

#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/codec.h"

namespace ronda {
namespace {

// Enough to record a failure and to complete the handles with it.
constexpr size_t kEmergencyBytes = size_t{256} << 10;

// The coordinator rank fails a stalled tensor itself; this much later the other ranks conclude that it does not run.
absl::Duration AnswerDeadline(const WaitLimits& limits) {
  return limits.deadline + std::max(absl::Seconds(1), limits.deadline / 4);
}

WaitLimits LimitsOf(const Tunables& tunables) {
  return {.warning = tunables.stall_warning, .deadline = tunables.stall_deadline};
}

}  // namespace

CoordinatorLoop::CoordinatorLoop(Options options, const Topology& topology, Transport transport)
    : options_(std::move(options)),
      topology_(topology),
      transport_(std::move(transport)),
      flight_(&transport_.flights->Of(topology.rank)),
      callbacks_(CallbackThread::Create(MakeHooks())),
      process_sets_(topology.size),
      queue_(callbacks_, flight_),
      limits_(LimitsOf(options_.tunables)),
      reporter_(std::make_unique<Reporter>(
          Reporter::Options{.rank = topology.rank, .world_size = topology.size, .identity = options_.identity})),
      executor_(std::make_unique<Executor>(Executor::Parts{.communicator = transport_.communicator.get(),
                                                           .queue = &queue_,
                                                           .process_sets = &process_sets_,
                                                           .flight = flight_},
                                           limits_)),
      emergency_memory_(new std::byte[kEmergencyBytes]) {
  if (topology_.rank != kCoordinatorRank) return;
  role_ = std::make_unique<CoordinatorRole>(options_.tunables, topology_.size, transport_.flights);
}

CallbackThread::Hooks CoordinatorLoop::MakeHooks() {
  return {.thrown = [this](const absl::Status& status) { Abandon(status); },
          .idle =
              [this] {
                if (shutdown_requested_.load()) transport_.control->Wake();
              }};
}

absl::StatusOr<std::shared_ptr<Handle>> CoordinatorLoop::Submit(const Submission& submission) {
  RONDA_ASSIGN_OR_RETURN(auto handle, queue_.Add(submission, options_.clock->Now()));
  transport_.control->Wake();
  return handle;
}

absl::StatusOr<std::vector<std::shared_ptr<Handle>>> CoordinatorLoop::SubmitAll(absl::Span<const Submission> submissions) {
  std::vector<std::shared_ptr<Handle>> handles;
  RONDA_RETURN_IF_ERROR(queue_.AddAll(submissions, options_.clock->Now(), &handles));
  transport_.control->Wake();
  return handles;
}

void CoordinatorLoop::RequestShutdown() {
  queue_.Refuse(absl::CancelledError("this rank is shutting down and accepts no tensors any more"));
  shutdown_requested_.store(true);
  transport_.control->Wake();
}

void CoordinatorLoop::Abandon(const absl::Status& status) {
  // Once this rank's job has ended, the others may still be reading that theirs has: nothing may be recorded any more.
  if (!ended_.load()) transport_.control->Fail(status);
}

absl::Status CoordinatorLoop::Run() {
  if (const absl::Status started = role_ ? role_->Start() : absl::OkStatus(); !started.ok()) return Fail(started);
  while (true) {
    const absl::StatusOr<Progress> progress = StepOrCatch();
    if (!progress.ok()) return FailOrRetry(progress.status());
    if (*progress == Progress::kJobEnded) return absl::OkStatus();
  }
}

// Nothing of ours throws but the standard library, above all when memory runs out. What it leaves half done does not
// matter: the job is over.
absl::StatusOr<CoordinatorLoop::Progress> CoordinatorLoop::StepOrCatch() {
  try {
    absl::StatusOr<Progress> progress = Step();
    if (progress.ok() && *progress == Progress::kNone) {
      transport_.control->Wait(NextDeadline(options_.clock->Now()));
    }
    return progress;
  } catch (const std::bad_alloc&) {
    // Trainer threads that go on submitting would take the reserve.
    queue_.Refuse(out_of_memory_);
    emergency_memory_.reset();
    AbandonState();
    return out_of_memory_;
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception in the coordinator thread: ", error.what()));
  }
}

// One of Abseil's hash tables that found no memory to grow cannot be destroyed. The state that has such tables is left
// where it is; the job is over, and needs it no more.
void CoordinatorLoop::AbandonState() {
  static_cast<void>(reporter_.release());
  static_cast<void>(executor_.release());
  static_cast<void>(role_.release());
}

absl::StatusOr<CoordinatorLoop::Progress> CoordinatorLoop::Step() {
  const absl::Time now = options_.clock->Now();
  RONDA_RETURN_IF_ERROR(ReportFresh(now));
  RONDA_ASSIGN_OR_RETURN(const ControlPlane::Inbox inbox, transport_.control->Receive());
  if (role_) {
    RONDA_RETURN_IF_ERROR(role_->Take(inbox.to_coordinator, now));
    RONDA_RETURN_IF_ERROR(role_->Inspect(now));
    if (const std::string list = role_->TakeBroadcast(now); !list.empty()) {
      RONDA_RETURN_IF_ERROR(transport_.control->Broadcast(list));
    }
  }
  for (const std::string& broadcast : inbox.broadcasts) {
    RONDA_ASSIGN_OR_RETURN(const Progress progress, Apply(broadcast, now));
    if (progress == Progress::kJobEnded) return progress;
  }
  if (!inbox.to_coordinator.empty() || !inbox.broadcasts.empty()) return Progress::kSome;
  // Only now: a rank that was stopped for long finds its answers in the inbox.
  RONDA_RETURN_IF_ERROR(CheckCoordinatorAnswers(now));
  return Progress::kNone;
}

absl::Status CoordinatorLoop::ReportFresh(absl::Time now) {
  // Read before the queue is looked at: every submission that was accepted before the request is then found.
  const bool shutting_down = shutdown_requested_.load();
  if (now - queue_.OldestFresh() >= options_.tunables.cycle_time || shutting_down) {
    for (const TensorEntry* entry : queue_.TakeFresh(now)) Report(*entry);
  }
  if (shutting_down && leaving_ == Leaving::kNo && queue_.empty() && callbacks_->idle()) {
    reporter_->Leave();
    leaving_ = Leaving::kReported;
    leaving_since_ = now;
    next_answer_check_ = std::min(next_answer_check_, now + AnswerDeadline(limits_));
  }
  if (!reporter_->has_news()) return absl::OkStatus();
  return transport_.control->SendToCoordinator(Encode(reporter_->TakeReport()));
}

void CoordinatorLoop::Report(const TensorEntry& entry) {
  const TensorRequest& request = entry.submission.request;
  if (reporter_->process_sets().Find(request.process_set) == nullptr) {
    queue_.Complete(&entry, absl::FailedPreconditionError(absl::StrCat("tensor '", request.name, "': process set ",
                                                                       request.process_set, " was removed")));
    return;
  }
  reporter_->Submit(request);
  flight_->Record(FlightKind::kReported, request.op, request.name, TensorBytes(request));
  next_answer_check_ = std::min(next_answer_check_, AnswerDue(entry));
}

absl::StatusOr<CoordinatorLoop::Progress> CoordinatorLoop::Apply(const std::string& broadcast, absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(const ResponseList list, DecodeResponseList(broadcast));
  RONDA_ASSIGN_OR_RETURN(const Reporter::Work work, reporter_->Apply(list));
  if (work.settings) {
    limits_ = work.settings->limits;
    executor_->set_limits(limits_);
    next_answer_check_ = now;
  }
  for (const TensorError& error : work.errors) RONDA_RETURN_IF_ERROR(Answer(error));
  RecordOrders(work.buckets);
  for (const AgreedBucket& bucket : work.buckets) RONDA_RETURN_IF_ERROR(executor_->Execute(bucket));
  // While this rank was in collectives it did not listen, nor did rank 0 speak.
  last_activity_ = options_.clock->Now();
  if (work.job == ResponseList::Job::kGoesOn) return Progress::kSome;
  ended_.store(true);
  transport_.control->Depart();
  queue_.Close(absl::CancelledError("the job has been shut down"));
  return Progress::kJobEnded;
}

void CoordinatorLoop::RecordOrders(const std::vector<AgreedBucket>& buckets) {
  for (const AgreedBucket& bucket : buckets) {
    if (!bucket.members->Contains(topology_.rank)) continue;
    const TensorRequest& first = bucket.responses.front()->request;
    flight_->Record(FlightKind::kAgreed, first.op, first.name, TensorBytes(first));
  }
}

absl::Status CoordinatorLoop::Answer(const TensorError& error) {
  const TensorEntry* entry = queue_.Find(error.key());
  if (entry == nullptr) {
    return absl::InternalError(
        absl::StrCat("the coordinator rank answers tensor '", error.name, "', which was not submitted on this rank"));
  }
  const TensorRequest& request = entry->submission.request;
  flight_->Record(FlightKind::kFailed, request.op, request.name, TensorBytes(request));
  queue_.Complete(entry, error.status);
  return absl::OkStatus();
}

// As long as rank 0 answers anything it is there: what then waits for too long it fails itself.
absl::Time CoordinatorLoop::UnansweredSince(const TensorEntry& entry) const {
  return std::max(entry.taken, last_activity_);
}

absl::Time CoordinatorLoop::AnswerDue(const TensorEntry& entry) const {
  return UnansweredSince(entry) + AnswerDeadline(entry.submission.request.limits.value_or(limits_));
}

absl::Status CoordinatorLoop::CheckCoordinatorAnswers(absl::Time now) {
  if (role_ || now < next_answer_check_) return absl::OkStatus();
  const TensorEntry* first = queue_.Earliest([&](const TensorEntry& entry) { return AnswerDue(entry); });
  const absl::Time tensor_due = first == nullptr ? absl::InfiniteFuture() : AnswerDue(*first);
  const absl::Time leave_due =
      leaving_ == Leaving::kReported ? leaving_since_ + AnswerDeadline(limits_) : absl::InfiniteFuture();
  next_answer_check_ = std::min(tensor_due, leave_due);
  if (now < next_answer_check_) return absl::OkStatus();
  const absl::Time since = tensor_due <= now ? UnansweredSince(*first) : leaving_since_;
  return absl::DeadlineExceededError(absl::StrCat(
      "rank 0, which coordinates the job, has not answered for ", absl::FormatDuration(now - since), " (waiting for ",
      tensor_due <= now ? absl::StrCat("tensor '", first->submission.request.name, "'") : "the end of the job",
      "): it is stopped, or its machine is overloaded; it ",
      DescribeLastAct(transport_.flights->Of(kCoordinatorRank))));
}

absl::Time CoordinatorLoop::NextDeadline(absl::Time now) const {
  const absl::Time next = queue_.OldestFresh() + options_.tunables.cycle_time;
  return std::min(next, role_ ? role_->next_inspection() : std::max(now, next_answer_check_));
}

// Recording a failure takes a little memory, and others may be quicker to take what has been given back. They have been
// refused by now, so that it comes free.
absl::Status CoordinatorLoop::FailOrRetry(const absl::Status& cause) {
  while (true) {
    try {
      return Fail(cause);
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

absl::Status CoordinatorLoop::Fail(const absl::Status& cause) {
  transport_.control->Fail(cause);
  absl::Status failure = transport_.control->failure();
  Log(LogLevel::kError, topology_.rank, failure.message());
  queue_.Close(failure);
  return failure;
}

}  // namespace ronda
