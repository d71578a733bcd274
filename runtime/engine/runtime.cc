// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/runtime.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/out_of_memory.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/caller_lane_opening.h"

namespace ronda {
namespace {

constexpr char kNotSubmitted[] = "out of memory: nothing was submitted; free some memory and try again";

// Runs `function`. If memory runs out, returns RESOURCE_EXHAUSTED with `text`.
template <typename Result, typename Function>
Result CatchOutOfMemory(const char* text, const Function& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    // There may not even be memory for the message. A status without text needs none.
    try {
      return absl::ResourceExhaustedError(text);
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
      progress_(std::make_shared<ProgressEngine>(options_.clock)),
      callbacks_(CallbackThread::Create(MakeHooks())),
      process_sets_(topology_.size),
      meter_(RankMeter::Create(
          {.job = transport_.job_id, .topology = topology_, .recorder = transport_.flights->PlaceOf(topology_.rank)})),
      log_(&transport_.flights->Of(topology_.rank), &timeline_, meter_.get()),
      queue_(callbacks_, progress_, &log_),
      device_(transport_.devices, options_.device_hint.value_or(topology_.local_rank), options_.device_timeout),
      devices_(MakeDeviceOptions()),
      steps_({.rank = topology_.rank, .control = transport_.control.get(), .queue = &queue_, .devices = &devices_},
             MakeLoop()) {
  progress_->Connect(&steps_);
}

CallbackThread::Hooks Runtime::MakeHooks() {
  return {.thrown = [this](const absl::Status& status) { Abandon(status); }, .idle = [this] { WakeForShutdown(); }};
}

DeviceWatch::Options Runtime::MakeWatchOptions() {
  return {.rank = topology_.rank,
          .flights = transport_.flights,
          .job_failure = [this] { return transport_.control->failure(); },
          .fail_job = [this](const absl::Status& status) { Abandon(status); },
          .stream_is_held = options_.stream_is_held,
          .ends_when_held = options_.ends_when_held,
          .idle = [this] { WakeForShutdown(); }};
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
          .watch = MakeWatchOptions(),
          .callers = &lanes_};
}

std::unique_ptr<CoordinationLoop> Runtime::MakeLoop() {
  return std::make_unique<CoordinationLoop>(CoordinationLoop::Parts{
      .topology = &topology_,
      .tunables = &options_.tunables,
      .clock = options_.clock,
      .transport = &transport_,
      .progress = progress_.get(),
      .callbacks = callbacks_.get(),
      .process_sets = &process_sets_,
      .meter = meter_.get(),
      .log = &log_,
      .queue = &queue_,
      .devices = &devices_,
      .shutdown_requested = &shutdown_requested_,
      .carry_out_request = [this](const TimelineRequest& request) { return CarryOutRequest(request); }});
}

std::unique_ptr<Runtime> Runtime::Create(Options options, Topology topology, Transport transport) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(options), std::move(topology), std::move(transport)));
  runtime->background_thread_ = std::thread([self = runtime.get()] { self->RunBackgroundThread(); });
  return runtime;
}

void Runtime::RunBackgroundThread() {
  while (const std::optional<absl::Time> deadline = progress_->DriveUntilIdle()) {
    if (progress_->expects_trainer()) transport_.control->ExpectPolling();
    transport_.control->Wait(*deadline);
  }
  StopTimeline();
  MutexLock lock(&mu_);
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
  return CatchOutOfMemory<absl::Status>(kNotSubmitted, [&]() -> absl::Status {
    const absl::Time now = options_.clock->Now();
    RONDA_RETURN_IF_ERROR(AddChecked(submissions, now, handles));
    Announce(now);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Submit(const Submission& submission) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>(kNotSubmitted, [&]() -> Result {
    const absl::Time now = options_.clock->Now();
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, Add(submission, now));
    Announce(now);
    return handle;
  });
}

absl::Status Runtime::SubmitAll(absl::Span<const Submission> submissions,
                                std::vector<std::shared_ptr<Handle>>* handles) {
  handles->clear();
  return CatchOutOfMemory<absl::Status>(kNotSubmitted, [&]() -> absl::Status {
    RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
    Wake();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::shared_ptr<Handle>> Runtime::Run(const Submission& submission, absl::Duration deadline) {
  using Result = absl::StatusOr<std::shared_ptr<Handle>>;
  return CatchOutOfMemory<Result>(kNotSubmitted, [&]() -> Result {
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, Add(submission, options_.clock->Now()));
    CarryOut(*handle, deadline);
    return handle;
  });
}

absl::Status Runtime::RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles) {
  return CatchOutOfMemory<absl::Status>(kNotSubmitted, [&]() -> absl::Status {
    RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
    for (const std::shared_ptr<Handle>& handle : *handles) CarryOut(*handle);
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> Runtime::OpenLane(ProcessSetId process_set, const void* buffer, WaitLimits limits) {
  if (lanes_.Find(process_set) != nullptr) return true;
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const Group> members, ProcessSet(process_set));
  if (!members->Contains(topology_.rank)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", topology_.rank, " is not in process set ", process_set,
                                                   ": open its lane on its members only"));
  }
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<CallerLane> lane,
                         OpenCallerLane({.process_set = process_set,
                                         .earlier_calls = lanes_.EarlierCalls(process_set),
                                         .members = std::move(members),
                                         .support = transport_.devices,
                                         .rank_device = &device_,
                                         .buffer = buffer,
                                         .limits = limits,
                                         .submitter = submitter(),
                                         .callbacks = callbacks_,
                                         .watch = MakeWatchOptions(),
                                         .run = [this](const Submission& submission) { return Run(submission); }}));
  if (lane == nullptr) return false;
  RONDA_RETURN_IF_ERROR(lanes_.Add(process_set, std::move(lane)));
  return true;
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
  return steps_.outcome();
}

void Runtime::Announce(absl::Time now) {
  if (progress_->OnSubmission(now) == ProgressEngine::Attempt::kBusy) Wake();
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
  // If the job has ended on this rank, other ranks may not have learned this yet, so this rank must not record a
  // failure any more.
  if (!steps_.has_ended()) transport_.control->Fail(cause);
}

void Runtime::AnnounceExit() {
  if (!steps_.has_ended()) transport_.control->AnnounceExit();
}

// Each call converts the exposed time from ticks to nanoseconds, so the result may be slightly less than that of an
// earlier call. So the function returns the greatest time so far.
Statistics Runtime::statistics() const {
  Statistics counts = Read(meter_->words());
  uint64_t told = exposed_told_.load(std::memory_order_relaxed);
  while (told < counts.exposed_nanoseconds &&
         !exposed_told_.compare_exchange_weak(told, counts.exposed_nanoseconds, std::memory_order_relaxed)) {
  }
  counts.exposed_nanoseconds = std::max(told, counts.exposed_nanoseconds);
  return counts;
}

absl::StatusOr<std::string> Runtime::CarryOutRequest(const TimelineRequest& request) {
  return CatchOutOfMemory<absl::StatusOr<std::string>>("out of memory: the request was not carried out",
                                                       [&]() -> absl::StatusOr<std::string> {
                                                         if (request.kind == TimelineRequest::Kind::kStop) {
                                                           StopTimeline();
                                                           return "";
                                                         }
                                                         RONDA_RETURN_IF_ERROR(StartTimeline(request.path));
                                                         return PathOfRank(request.path, topology_.rank);
                                                       });
}

}  // namespace ronda
