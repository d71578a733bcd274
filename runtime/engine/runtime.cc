// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/float_environment.h"
#include "runtime/base/logging.h"
#include "runtime/base/out_of_memory.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/messages.h"

namespace ronda {
namespace {

// Enough memory to record a failure and to complete the handles with it.
constexpr size_t kEmergencyBytes = size_t{256} << 10;
// A program that waits and has neither submitted anything nor been answered for this long reports that to the
// coordinator.
constexpr absl::Duration kQuiet = absl::Seconds(1);

std::string Identity(const Topology& topology) { return absl::StrCat("host ", topology.hostname, ", pid ", getpid()); }

// Runs `submit`, and turns lack of memory into a status.
template <typename Result, typename Function>
Result CatchOutOfMemory(const Function& submit) {
  try {
    return submit();
  } catch (const std::bad_alloc&) {
    // Even this text may be too long; a status without a text needs no memory.
    try {
      return absl::ResourceExhaustedError("out of memory: nothing was submitted; free some memory and try again");
    } catch (const std::bad_alloc&) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
  }
}

}  // namespace

Runtime::Runtime(Options options, Topology topology, Transport transport)
    : topology_(std::move(topology)),
      options_(std::move(options)),
      transport_(std::move(transport)),
      control_(transport_.control.get()),
      progress_(std::make_shared<ProgressEngine>(options_.clock)),
      callbacks_(CallbackThread::Create(MakeHooks())),
      process_sets_(topology_.size),
      meter_(RankMeter::Create(
          {.job = transport_.job_id, .topology = topology_, .recorder = transport_.flights->PlaceOf(topology_.rank)})),
      log_(&transport_.flights->Of(topology_.rank), &timeline_, meter_.get()),
      queue_(callbacks_, progress_, &log_),
      device_(transport_.devices, options_.device_hint.value_or(topology_.local_rank), options_.device_patience),
      devices_(MakeDeviceOptions()),
      cycle_time_(options_.tunables.cycle_time),
      answers_(&queue_, transport_.flights.get(), LimitsOf(options_.tunables)),
      reporter_(std::make_unique<Reporter>(
          Reporter::Options{.rank = topology_.rank, .world_size = topology_.size, .identity = Identity(topology_)})),
      executor_(std::make_unique<Executor>(Executor::Parts{.communicator = transport_.communicator.get(),
                                                           .queue = &queue_,
                                                           .process_sets = &process_sets_,
                                                           .log = &log_,
                                                           .devices = &devices_},
                                           LimitsOf(options_.tunables))),
      role_(topology_.rank == kCoordinatorRank
                ? std::make_unique<CoordinatorRole>(options_.tunables, topology_.size, transport_.flights, &log_)
                : nullptr),
      schedule_(std::make_unique<ScheduleRunner>(ScheduleRunner::Parts{.control = control_,
                                                                       .progress = progress_.get(),
                                                                       .queue = &queue_,
                                                                       .executor = executor_.get(),
                                                                       .role = role_.get(),
                                                                       .log = &log_,
                                                                       .counters = &meter_->counters()})),
      emergency_memory_(new std::byte[kEmergencyBytes]) {
  progress_->Connect(this);
}

CallbackThread::Hooks Runtime::MakeHooks() {
  return {.thrown = [this](const absl::Status& status) { Abandon(status); }, .idle = [this] { WakeForShutdown(); }};
}

DeviceLanes::Options Runtime::MakeDeviceOptions() {
  return {.rank = topology_.rank,
          .support = transport_.devices,
          .device = &device_,
          .host = transport_.communicator.get(),
          .levels = transport_.levels.has_value() ? &*transport_.levels : nullptr,
          .callbacks = callbacks_,
          .progress = progress_,
          .timeline = &timeline_,
          .times = &meter_->device_times(),
          .watch = {.rank = topology_.rank,
                    .flights = transport_.flights,
                    .job_failure = [this] { return control_->failure(); },
                    .fail_job = [this](const absl::Status& status) { Abandon(status); },
                    .idle = [this] { WakeForShutdown(); }}};
}

std::unique_ptr<Runtime> Runtime::Create(Options options, Topology topology, Transport transport) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(options), std::move(topology), std::move(transport)));
  runtime->background_thread_ = std::thread([self = runtime.get()] { self->RunBackgroundThread(); });
  return runtime;
}

void Runtime::RunBackgroundThread() {
  while (const std::optional<absl::Time> deadline = progress_->DriveUntilIdle()) {
    if (progress_->expects_trainer()) control_->ExpectPolling();
    control_->Wait(*deadline);
  }
  StopTimeline();
  MutexLock lock(&mu_);
  result_ = outcome_;
  is_over_ = true;
  job_ended_.NotifyAll();
}

Runtime::~Runtime() {
  UntilMemoryIsFound([this] { Abandon(absl::AbortedError("ended without shutdown()")); });
  if (background_thread_.joinable()) background_thread_.join();  // unless Create has failed to start it
  callbacks_->Stop();
  progress_->Disconnect();  // waits for threads that drive
}

// --- For any thread ---

Submitter Runtime::submitter() const {
  return {.rank = topology_.rank, .world_size = topology_.size, .process_sets = &process_sets_};
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Add(const Submission& submission, absl::Time now) {
  RONDA_RETURN_IF_ERROR(CheckSubmission(submission, submitter()));
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankDevice::Ready> ready, device_.Admit({&submission, 1}));
  return queue_.Add(submission, now, ready.empty() ? nullptr : ready.front());
}

absl::Status Runtime::AddAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles) {
  RONDA_RETURN_IF_ERROR(Check(submissions));
  return AddChecked(submissions, options_.clock->Now(), handles);
}

absl::Status Runtime::AddChecked(absl::Span<const Submission> submissions, absl::Time now,
                                 std::vector<std::shared_ptr<Handle>>* handles) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankDevice::Ready> ready, device_.Admit(submissions));
  return queue_.AddAll(submissions, now, handles, ready);
}

absl::Status Runtime::SubmitChecked(absl::Span<const Submission> submissions,
                                    std::vector<std::shared_ptr<Handle>>* handles) {
  return CatchOutOfMemory<absl::Status>([&]() -> absl::Status {
    const absl::Time now = options_.clock->Now();
    RONDA_RETURN_IF_ERROR(AddChecked(submissions, now, handles));
    Announce(now);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Submit(const Submission& submission) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>([&]() -> Result {
    const absl::Time now = options_.clock->Now();
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, Add(submission, now));
    Announce(now);
    return handle;
  });
}

absl::StatusOr<std::vector<std::shared_ptr<Handle>>> Runtime::SubmitAll(absl::Span<const Submission> submissions) {
  std::vector<std::shared_ptr<Handle>> handles;
  RONDA_RETURN_IF_ERROR(SubmitAll(submissions, &handles));
  return handles;
}

absl::Status Runtime::SubmitAll(absl::Span<const Submission> submissions,
                                std::vector<std::shared_ptr<Handle>>* handles) {
  handles->clear();
  return CatchOutOfMemory<absl::Status>([&]() -> absl::Status {
    RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
    Wake();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Run(const Submission& submission, absl::Duration deadline) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>([&]() -> Result {
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, Add(submission, options_.clock->Now()));
    CarryOut(*handle, deadline);
    return handle;
  });
}

absl::Status Runtime::RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles) {
  return CatchOutOfMemory<absl::Status>([&]() -> absl::Status {
    RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
    for (const std::shared_ptr<Handle>& handle : *handles) CarryOut(*handle);
    return absl::OkStatus();
  });
}

absl::Status Runtime::StartTimeline(const std::string& path) {
  return timeline_.Start(
      {.path = path, .rank = topology_.rank, .host = topology_.hostname, .most_bytes = options_.timeline_bytes});
}

absl::Status Runtime::Shutdown() {
  if (InCallback()) {
    return absl::FailedPreconditionError("shutdown from a callback, which it would wait for: call it elsewhere");
  }
  queue_.Refuse(absl::CancelledError("this rank is shutting down and accepts no tensors any more"));
  shutdown_requested_.store(true);
  Wake();
  MutexLock lock(&mu_);
  while (!is_over_) job_ended_.Wait(&mu_);
  return result_;
}

void Runtime::Announce(absl::Time now) {
  if (progress_->TakeNote(now) == ProgressEngine::Attempt::kBusy) Wake();
}

void Runtime::CarryOut(const Handle& handle, absl::Duration deadline) {
  int looks = 0;
  const auto done = [&] { return handle.IsLaunchedOrPast(deadline, &looks); };
  if (progress_->Drive(done) == ProgressEngine::Attempt::kBusy) Wake();
  handle.WaitUntil(deadline);
}

void Runtime::WakeForShutdown() {
  if (shutdown_requested_.load()) Wake();
}

void Runtime::Abandon(const absl::Status& cause) {
  // After this rank's job has ended, other ranks may still be reading that theirs has ended: nothing may be recorded
  // any more.
  if (!ended_.load()) control_->Fail(cause);
}

void Runtime::AnnounceExit() {
  if (!ended_.load()) control_->AnnounceExit();
}

// --- How a step ends ---

ProgressEngine::Steps::Progress Runtime::Advance() {
  return Guard([this] { return Step(); });
}

ProgressEngine::Steps::Progress Runtime::TakeNote(absl::Time now) {
  return Guard([this, now]() -> absl::StatusOr<Progress> {
    // If no schedule is locked, or a bucket is ready, the background thread must make a step.
    if (!schedule_->locked() || orders_) return Progress::kNone;
    TakeFresh(now);
    schedule_->CheckPatience(now);
    return Progress::kNone;
  });
}

ProgressEngine::Steps::Progress Runtime::Guard(absl::FunctionRef<absl::StatusOr<Progress>()> step) {
  const absl::StatusOr<Progress> progress = StepOrCatch(step);
  if (progress.ok() && *progress != Progress::kOver) return *progress;
  if (progress.ok()) {
    End();
  } else {
    outcome_ = FailOrRetry(progress.status());
  }
  return Progress::kOver;
}

// Only the standard library throws, mostly when memory runs out. Unfinished work does not matter, because the job is
// over.
absl::StatusOr<ProgressEngine::Steps::Progress> Runtime::StepOrCatch(
    absl::FunctionRef<absl::StatusOr<Progress>()> step) {
  try {
    // On any thread, because all ranks must get the same bits.
    const ScopedFloatEnvironment default_environment;
    return step();
  } catch (const std::bad_alloc&) {
    // Otherwise trainer threads that still submit would take the reserve.
    queue_.Refuse(out_of_memory_);
    emergency_memory_.reset();
    AbandonState();
    return out_of_memory_;
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception in the progress engine: ", error.what()));
  }
}

void Runtime::End() {
  ended_.store(true);
  control_->Depart();
  devices_.Close(absl::OkStatus());
  queue_.Close(shut_down_);
}

// Recording a failure takes a little memory, and other threads may take the freed memory first. Their submissions are
// refused by now, so that memory becomes free again.
absl::Status Runtime::FailOrRetry(const absl::Status& cause) {
  return UntilMemoryIsFound([&] { return Fail(cause); });
}

absl::Status Runtime::Fail(const absl::Status& cause) {
  control_->Fail(cause);
  absl::Status failure = control_->failure();
  Log(LogLevel::kError, topology_.rank, failure.message());
  // In this order, because ending the work under way on a device may take long, and no thread should wait for that.
  queue_.Close(failure);
  devices_.Close(failure);
  return failure;
}

void Runtime::AbandonState() {
  static_cast<void>(reporter_.release());
  static_cast<void>(executor_.release());
  static_cast<void>(role_.release());
  static_cast<void>(schedule_.release());
}

// The time is converted at each look, and may come out slightly lower than before.
Statistics Runtime::statistics() const {
  Statistics counts = Read(meter_->words());
  uint64_t told = exposed_told_.load(std::memory_order_relaxed);
  while (told < counts.exposed_nanoseconds &&
         !exposed_told_.compare_exchange_weak(told, counts.exposed_nanoseconds, std::memory_order_relaxed)) {
  }
  counts.exposed_nanoseconds = std::max(told, counts.exposed_nanoseconds);
  return counts;
}

// --- The steps ---

absl::StatusOr<ProgressEngine::Steps::Progress> Runtime::Step() {
  if (role_ && !std::exchange(started_, true)) RONDA_RETURN_IF_ERROR(role_->Start());
  meter_->counters().exposed_nanoseconds.Set(progress_->exposed_ticks());
  if (HasRequest(meter_->request())) {
    TakeRequest([this](const TimelineRequest& request) { return CarryOutRequest(request); }, &meter_->request());
  }
  // The coordinator sends a list only after it has unlocked the schedule. This rank also unlocks before it carries out
  // the list.
  if (!lists_.empty()) schedule_->RequestUnlock();
  // First, because the coordinator must finish its lists before it listens again.
  if (orders_ || (!lists_.empty() && !schedule_->locked())) return CarryOutNext();
  const absl::Time now = options_.clock->Now();
  RONDA_RETURN_IF_ERROR(ReportFresh(now));
  if (schedule_->locked()) {
    RONDA_ASSIGN_OR_RETURN(const Progress progress, FollowSchedule(now));
    if (progress != Progress::kNone) return progress;
  }
  return Listen(now);
}

// If there is no memory for a request, the request fails, but not the job.
absl::StatusOr<std::string> Runtime::CarryOutRequest(const TimelineRequest& request) {
  try {
    if (request.kind == TimelineRequest::Kind::kStop) {
      StopTimeline();
      return "";
    }
    RONDA_RETURN_IF_ERROR(StartTimeline(request.path));
    return PathOfRank(request.path, topology_.rank);
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  }
}

absl::StatusOr<ProgressEngine::Steps::Progress> Runtime::FollowSchedule(absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(const ScheduleRunner::Outcome outcome, schedule_->RunNext(now));
  if (outcome == ScheduleRunner::Outcome::kNotReady) return Progress::kNone;
  if (outcome == ScheduleRunner::Outcome::kUnlocked) {
    const absl::Time unlocked = options_.clock->Now();
    answers_.Heard(unlocked);
    if (schedule_->is_misfit()) reporter_->NoteMisfit();
    ReportWhatWaited(unlocked);
  }
  return Progress::kSome;
}

absl::Status Runtime::ReportFresh(absl::Time now) {
  // Read before the queue is examined: so every submission that was accepted before the request is found.
  const bool shutting_down = shutdown_requested_.load();
  if (shutting_down || schedule_->locked() || now - queue_.OldestFresh() >= cycle_time_) {
    TakeFresh(now);
  }
  if (shutting_down) ShutDownIfDone(now);
  if (schedule_->locked()) return absl::OkStatus();
  if (now >= NextLookAtProgram()) LookAtProgram(now);
  if (!reporter_->has_news()) return absl::OkStatus();
  meter_->counters().reports_sent.Add();
  return control_->SendToCoordinator(Encode(reporter_->TakeReport()));
}

absl::Time Runtime::NextLookAtProgram() const { return queue_.empty() ? absl::InfiniteFuture() : look_at_program_; }

// A callback may submit something. A device may have work whose end another thread waits for.
void Runtime::LookAtProgram(absl::Time now) {
  const bool waits = progress_->waiting() > 0 && callbacks_->idle() && devices_.idle();
  reporter_->NoteProgram(waits ? RankReport::Program::kWaits : RankReport::Program::kRuns);
  look_at_program_ = now + kQuiet;
}

void Runtime::TakeFresh(absl::Time now) {
  for (TensorEntry* entry : queue_.TakeFresh(now)) Report(*entry);
}

void Runtime::ShutDownIfDone(absl::Time now) {
  // Tensors in flight may be in a bucket that will never be complete.
  schedule_->RequestUnlock();
  if (departure_ == Departure::kReported) return;
  if (!queue_.has_only_removals()) return Drain();
  // In this order, because operations that a device completes have callbacks.
  if (!devices_.idle() || !callbacks_->idle()) return;
  reporter_->ShutDown();
  departure_ = Departure::kReported;
  answers_.ExpectEnd(now);
}

// Other ranks may wait for tensors that this rank will never submit, and so keep it waiting for its own operations.
void Runtime::Drain() {
  if (departure_ != Departure::kNotYet || queue_.has_followers()) return;
  reporter_->Drain();
  departure_ = Departure::kDraining;
}

void Runtime::Report(TensorEntry& entry) {
  if (schedule_->SubmitAgain(entry)) return;
  const TensorRequest& request = entry.submission.request;
  if (reporter_->process_sets().Find(request.process_set) == nullptr) {
    return queue_.Complete(
        &entry, absl::FailedPreconditionError(
                    absl::StrCat("tensor '", request.name, "': process set ", request.process_set, " was removed")));
  }
  reporter_->NoteCompletions(entry.learned_of);
  if (schedule_->locked()) return schedule_->Submit(entry, reporter_->Find(request));
  reporter_->Submit(request);
  look_at_program_ = entry.taken + kQuiet;
  entry.reported = log_.Reported(request);
  answers_.Expect(entry);
}

void Runtime::ReportAnew() {
  for (TensorEntry* entry : queue_.Taken()) Report(*entry);
}

// Submissions that have come meanwhile are reported together with the others, so that one age applies to all: deadlines
// begin at the submission.
void Runtime::ReportWhatWaited(absl::Time now) {
  static_cast<void>(queue_.TakeFresh(now));  // so that Taken() includes them
  absl::Time newest = absl::InfinitePast();
  for (const TensorEntry* entry : queue_.Taken()) newest = std::max(newest, entry->since);
  if (newest < now && newest != absl::InfinitePast()) reporter_->SetAge(now - newest);
  ReportAnew();
}

absl::StatusOr<ProgressEngine::Steps::Progress> Runtime::Listen(absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(ControlPlane::Inbox inbox, control_->Receive());
  meter_->counters().reports_received.Add(inbox.to_coordinator.size());
  meter_->counters().lists_received.Add(inbox.broadcasts.size());
  std::move(inbox.to_coordinator.begin(), inbox.to_coordinator.end(), std::back_inserter(reports_));
  std::move(inbox.broadcasts.begin(), inbox.broadcasts.end(), std::back_inserter(lists_));
  if (schedule_->NoteCallOff(inbox.called_off)) return Progress::kSome;
  if (role_) RONDA_RETURN_IF_ERROR(Coordinate(now));
  if (!inbox.to_coordinator.empty() || !lists_.empty()) return Progress::kSome;
  // Checked last, because a rank that was stopped for long finds its answers in the inbox.
  if (!role_ && !schedule_->locked()) RONDA_RETURN_IF_ERROR(answers_.Check(now));
  return Progress::kNone;
}

absl::Status Runtime::Coordinate(absl::Time now) {
  // A rank that has left the schedule may report before this rank has left it, or even before this rank has begun it.
  // Its report can wait until then.
  if (role_->locked()) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(role_->Take(reports_, now));
  reports_.clear();
  RONDA_RETURN_IF_ERROR(role_->Inspect(now));
  const std::string list = role_->TakeBroadcast(now);
  if (list.empty()) return absl::OkStatus();
  meter_->counters().lists_sent.Add();
  return control_->Broadcast(list);
}

absl::StatusOr<ProgressEngine::Steps::Progress> Runtime::CarryOutNext() {
  if (!orders_) {
    RONDA_RETURN_IF_ERROR(Begin(lists_.front()));
    lists_.pop_front();
  } else {
    meter_->counters().buckets_agreed.Add();
    RONDA_RETURN_IF_ERROR(executor_->Execute(orders_->work.buckets[orders_->next_bucket++]));
  }
  return orders_->has_buckets() ? Progress::kSome : Conclude();
}

absl::Status Runtime::Begin(const std::string& list) {
  RONDA_ASSIGN_OR_RETURN(const ResponseList decoded, DecodeResponseList(list));
  RONDA_ASSIGN_OR_RETURN(Reporter::Work work, reporter_->Apply(decoded));
  orders_.emplace(Orders{.work = std::move(work)});
  if (orders_->work.settings) ApplySettings(*orders_->work.settings);
  for (const ReceiveMatch& match : orders_->work.matches) RONDA_RETURN_IF_ERROR(queue_.Match(match));
  for (const TensorError& error : orders_->work.errors) RONDA_RETURN_IF_ERROR(Answer(error));
  if (orders_->has_buckets()) log_.Cycled();
  RecordOrders(orders_->work.buckets);
  return absl::OkStatus();
}

void Runtime::ApplySettings(const JobSettings& settings) {
  executor_->set_limits(settings.limits);
  answers_.set_limits(settings.limits);
  cycle_time_ = settings.cycle_time;
  transport_.communicator->Tune({.chunk_bytes = settings.chunk_bytes});
}

void Runtime::RecordOrders(const std::vector<AgreedBucket>& buckets) {
  for (const AgreedBucket& bucket : buckets) {
    if (bucket.members->Contains(topology_.rank)) log_.Agreed(bucket);
  }
}

absl::Status Runtime::Answer(const TensorError& error) {
  const TensorEntry* entry = queue_.Find(error.key());
  if (entry == nullptr) {
    return absl::InternalError(
        absl::StrCat("the coordinator rank answers tensor '", error.name, "', which was not submitted on this rank"));
  }
  log_.Failed(entry->submission.request);
  queue_.Complete(entry, AboutCall(entry->submission, error.status));
  return absl::OkStatus();
}

absl::StatusOr<ProgressEngine::Steps::Progress> Runtime::Conclude() {
  const ResponseList::Job job = orders_->work.job;
  std::optional<ResolvedSchedule> schedule = std::move(orders_->work.schedule);
  orders_.reset();
  const absl::Time now = options_.clock->Now();
  answers_.Heard(now);
  look_at_program_ = now + kQuiet;
  if (schedule) {
    meter_->counters().schedules_begun.Add();
    schedule_->Begin(*std::move(schedule), now);
    ReportAnew();
  }
  return job == ResponseList::Job::kGoesOn ? Progress::kSome : Progress::kOver;
}

absl::Time Runtime::NextDeadline() {
  if (orders_ || !lists_.empty()) return absl::InfinitePast();
  const absl::Time fresh = queue_.OldestFresh();
  if (schedule_->ready()) return absl::InfinitePast();
  if (schedule_->locked()) return std::min(fresh, schedule_->NextDeadline());
  const absl::Time look = role_ ? role_->next_inspection() : answers_.next_check();
  return std::min({fresh + cycle_time_, look, NextLookAtProgram()});
}

}  // namespace ronda
