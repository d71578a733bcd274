#include "runtime/engine/coordinator_loop.h"

#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/float_environment.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Enough to record a failure and to complete the handles with it.
constexpr size_t kEmergencyBytes = size_t{256} << 10;

}  // namespace

CoordinatorLoop::CoordinatorLoop(RankEngine::Options options, const Topology& topology, Transport transport)
    : topology_(topology),
      clock_(options.clock),
      transport_(std::move(transport)),
      driver_(std::make_shared<EngineDriver>()),
      callbacks_(CallbackThread::Create(MakeHooks())),
      process_sets_(topology.size),
      log_(&transport_.flights->Of(topology.rank), &timeline_),
      queue_(callbacks_, driver_, &log_),
      device_(transport_.devices, topology.local_rank),
      devices_(MakeDeviceOptions()),
      engine_(std::move(options), {.topology = &topology_,
                                   .transport = &transport_,
                                   .driver = driver_.get(),
                                   .callbacks = callbacks_.get(),
                                   .process_sets = &process_sets_,
                                   .queue = &queue_,
                                   .shutdown_requested = &shutdown_requested_,
                                   .devices = &devices_,
                                   .log = &log_}),
      emergency_memory_(new std::byte[kEmergencyBytes]) {
  driver_->Connect(this);
}

CallbackThread::Hooks CoordinatorLoop::MakeHooks() {
  return {.thrown = [this](const absl::Status& status) { Abandon(status); }, .idle = [this] { WakeForShutdown(); }};
}

DeviceLanes::Options CoordinatorLoop::MakeDeviceOptions() {
  return {.rank = topology_.rank,
          .support = transport_.devices,
          .device = &device_,
          .host = transport_.communicator.get(),
          .levels = transport_.levels.has_value() ? &*transport_.levels : nullptr,
          .callbacks = callbacks_,
          .driver = driver_,
          .timeline = &timeline_,
          .watch = {.rank = topology_.rank,
                    .flights = transport_.flights,
                    .job_failure = [this] { return transport_.control->failure(); },
                    .fail_job = [this](const absl::Status& status) { Abandon(status); },
                    .settled = [this] { Wake(); },
                    .idle = [this] { WakeForShutdown(); }}};
}

absl::StatusOr<std::shared_ptr<Handle>> CoordinatorLoop::Submit(const Submission& submission) {
  const absl::Time now = clock_->Now();
  RONDA_ASSIGN_OR_RETURN(auto handle, Add(submission, now));
  Announce(now);
  return handle;
}

absl::Status CoordinatorLoop::SubmitAll(absl::Span<const Submission> submissions,
                                        std::vector<std::shared_ptr<Handle>>* handles) {
  RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
  Wake();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Handle>> CoordinatorLoop::Run(const Submission& submission) {
  RONDA_ASSIGN_OR_RETURN(auto handle, Add(submission, clock_->Now()));
  CarryOut(*handle);
  return handle;
}

absl::Status CoordinatorLoop::RunAll(absl::Span<const Submission> submissions,
                                     std::vector<std::shared_ptr<Handle>>* handles) {
  RONDA_RETURN_IF_ERROR(AddAll(submissions, handles));
  for (const std::shared_ptr<Handle>& handle : *handles) CarryOut(*handle);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Handle>> CoordinatorLoop::Add(const Submission& submission, absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankDevice::Ready> ready, device_.Admit({&submission, 1}));
  return queue_.Add(submission, now, ready.empty() ? nullptr : ready.front());
}

absl::Status CoordinatorLoop::AddAll(absl::Span<const Submission> submissions,
                                     std::vector<std::shared_ptr<Handle>>* handles) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<RankDevice::Ready> ready, device_.Admit(submissions));
  return queue_.AddAll(submissions, clock_->Now(), handles, ready);
}

void CoordinatorLoop::Announce(absl::Time now) {
  if (driver_->TakeNote(now) == EngineDriver::Turn::kBusy) Wake();
}

void CoordinatorLoop::CarryOut(const Handle& handle) {
  if (driver_->Drive([&] { return handle.launched(); }) == EngineDriver::Turn::kBusy) Wake();
  static_cast<void>(handle.Wait());  // the caller asks for the status
}

void CoordinatorLoop::RequestShutdown() {
  queue_.Refuse(absl::CancelledError("this rank is shutting down and accepts no tensors any more"));
  shutdown_requested_.store(true);
  Wake();
}

void CoordinatorLoop::Abandon(const absl::Status& status) {
  // Once this rank's job has ended, the others may still be reading that theirs has: nothing may be recorded any more.
  if (!ended_.load()) transport_.control->Fail(status);
}

absl::Status CoordinatorLoop::Run() {
  while (const std::optional<absl::Time> deadline = driver_->DriveUntilIdle()) transport_.control->Wait(*deadline);
  return result_;
}

EngineDriver::Engine::Progress CoordinatorLoop::Advance() {
  return AdvanceBy([this] { return engine_.Step(); });
}

EngineDriver::Engine::Progress CoordinatorLoop::TakeNote(absl::Time now) {
  return AdvanceBy([this, now]() -> absl::StatusOr<Progress> {
    engine_.TakeNote(now);
    return Progress::kNone;
  });
}

EngineDriver::Engine::Progress CoordinatorLoop::AdvanceBy(absl::FunctionRef<absl::StatusOr<Progress>()> step) {
  const absl::StatusOr<Progress> progress = StepOrCatch(step);
  if (progress.ok() && *progress != Progress::kOver) return *progress;
  if (progress.ok()) {
    End();
  } else {
    result_ = FailOrRetry(progress.status());
  }
  return Progress::kOver;
}

absl::Time CoordinatorLoop::NextDeadline() { return engine_.NextDeadline(); }

// Nothing of ours throws but the standard library, above all when memory runs out. What it leaves half done does not
// matter: the job is over.
absl::StatusOr<EngineDriver::Engine::Progress> CoordinatorLoop::StepOrCatch(
    absl::FunctionRef<absl::StatusOr<Progress>()> step) {
  try {
    // Whichever thread this is: all ranks must get the same bits.
    const ScopedFloatEnvironment default_environment;
    return step();
  } catch (const std::bad_alloc&) {
    // Trainer threads that go on submitting would take the reserve.
    queue_.Refuse(out_of_memory_);
    emergency_memory_.reset();
    engine_.AbandonState();
    return out_of_memory_;
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception in the coordinator thread: ", error.what()));
  }
}

void CoordinatorLoop::End() {
  ended_.store(true);
  transport_.control->Depart();
  devices_.Close(absl::OkStatus());
  queue_.Close(shut_down_);
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
  // In this order: to end what is under way on a device may take long, and nobody is to wait for that.
  queue_.Close(failure);
  devices_.Close(failure);
  return failure;
}

}  // namespace ronda
