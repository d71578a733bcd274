// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/device_watch.h"

#include <algorithm>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {
namespace {

constexpr absl::Duration kSpin = absl::Microseconds(20);
constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
constexpr absl::Duration kLongestSleep = absl::Microseconds(100);
// The sleep between two polls if no thread waits for the device.
constexpr absl::Duration kIdleSleep = absl::Milliseconds(1);
// The time between two checks for failures, which the watch makes less often than it polls the device.
constexpr absl::Duration kCheckPeriod = absl::Milliseconds(1);
// How long a wait must last before the watch first asks for an objection (Options::objection).
constexpr absl::Duration kFirstObjection = absl::Milliseconds(16);

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceWatch>> DeviceWatch::Start(Options options) {
  auto watch = std::unique_ptr<DeviceWatch>(new DeviceWatch(std::move(options)));
  try {
    watch->thread_ = std::thread([self = watch.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread to watch the device: ", error.what()));
  }
  return watch;
}

void DeviceWatch::Watch(std::shared_ptr<DeviceCompletion> completion) {
  absl::Status stopped;
  {
    MutexLock lock(&mu_);
    stopped = stopped_;
    if (stopped.ok()) {
      queue_.push_back(std::move(completion));
      // The thread waits for a new bucket only while the queue is empty; otherwise other buckets keep it awake.
      if (queue_.size() > 1) return;
    }
  }
  if (stopped.ok()) return changed_.NotifyAll();
  completion->Settle(stopped);
}

void DeviceWatch::RecordLaunch() {
  {
    MutexLock lock(&mu_);
    // Unless this is the only bucket in the queue, the thread waits for an earlier bucket or has already finished this
    // one, so it need not be woken.
    if (queue_.size() != 1) return;
  }
  changed_.NotifyAll();
}

bool DeviceWatch::idle() const {
  MutexLock lock(&mu_);
  return queue_.empty();
}

void DeviceWatch::Stop(const absl::Status& status) {
  SettleAll(status);
  changed_.NotifyAll();
  options_.waiters->Ring();
  if (thread_.joinable()) thread_.join();
}

absl::Status DeviceWatch::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

// Ronda's own code does not throw, but the standard library may, mostly when memory runs out. Reporting an exception
// also takes some memory, so the thread yields to other threads, which may free memory.
void DeviceWatch::Run() {
  while (true) {
    try {
      if (!WatchNext()) return;
    } catch (const std::bad_alloc&) {
      thrown_ = out_of_memory_;
      std::this_thread::yield();
    } catch (const std::exception&) {
      thrown_ = exception_;
      std::this_thread::yield();
    }
  }
}

bool DeviceWatch::WatchNext() {
  if (!thrown_.ok()) {
    if (failure_.ok()) failure_ = Fail(thrown_);
    thrown_ = absl::OkStatus();
  }
  const std::shared_ptr<DeviceCompletion> next = AwaitNext();
  if (next == nullptr) return false;
  Settle(*next);
  Finish(*next);
  return true;
}

std::shared_ptr<DeviceCompletion> DeviceWatch::AwaitNext() {
  MutexLock lock(&mu_);
  while (queue_.empty() && stopped_.ok()) changed_.Wait(&mu_);
  return queue_.empty() ? nullptr : queue_.front();
}

void DeviceWatch::Settle(DeviceCompletion& completion) {
  completion.options().device->Adopt();
  for (const Phase phase : {Phase::kLaunch, Phase::kDevice}) {
    if (failure_.ok()) failure_ = Await(phase, completion);
  }
  if (failure_.ok() && completion.is_settled() && !completion.status().ok()) {
    // If Stop has settled the bucket, the bucket has not failed.
    failure_ = stopped().ok() ? Fail(completion.status()) : completion.status();
  }
  if (!failure_.ok()) completion.Settle(failure_);
}

absl::Status DeviceWatch::Await(Phase phase, DeviceCompletion& completion) {
  const absl::Duration began = MonotonicTime();
  absl::Duration checked = absl::ZeroDuration();
  absl::Duration objects = kFirstObjection;
  while (!IsOver(phase, completion)) {
    const absl::Duration waited = MonotonicTime() - began;
    if (waited - checked >= kCheckPeriod) {
      RONDA_RETURN_IF_ERROR(Check(phase, completion, waited, checked));
      checked = waited;
    }
    if (waited >= objects && options_.objection != nullptr) {
      if (const absl::Status objection = options_.objection(completion); !objection.ok()) return Fail(objection);
      objects = 2 * waited;
    }
    const bool spins = phase == Phase::kDevice && waited < kSpin && options_.waiters->is_wanted();
    if (!spins) Sleep(phase, completion, waited);
  }
  return absl::OkStatus();
}

bool DeviceWatch::IsOver(Phase phase, DeviceCompletion& completion) {
  if (phase == Phase::kDevice) return completion.done();
  return completion.launching() != DeviceCompletion::Launching::kUnderWay;
}

void DeviceWatch::Sleep(Phase phase, const DeviceCompletion& completion, absl::Duration waited) {
  if (phase == Phase::kDevice) {
    if (!stopped().ok()) return;
    DeviceWaiters& waiters = *options_.waiters;
    return waiters.Sleep(waiters.is_wanted() ? std::clamp(waited / 4, kShortestSleep, kLongestSleep) : kIdleSleep);
  }
  MutexLock lock(&mu_);
  if (!stopped_.ok()) return;
  if (completion.launching() == DeviceCompletion::Launching::kUnderWay) {
    // No wake-up is lost: after the launch, the launching thread takes the lock before it wakes this thread.
    changed_.WaitFor(&mu_, kCheckPeriod);
  }
}

absl::Status DeviceWatch::Check(Phase phase, DeviceCompletion& completion, absl::Duration waited,
                                absl::Duration checked_before) {
  const DeviceCompletion::Options& options = completion.options();
  absl::Status failure = options_.job_failure();
  if (!failure.ok()) {
    EndAll(failure);
    return failure;
  }
  // After an orderly end of the job, the work goes on, because the rank's last buckets may still be on the device.
  RONDA_RETURN_IF_ERROR(stopped());
  if (options_.transport_failure != nullptr) failure = options_.transport_failure();
  if (!failure.ok()) return Fail(failure);
  const WaitLimits& limits = options.limits;
  const absl::Duration deadline = DeadlineOf(phase, limits);
  if (waited >= deadline) {
    failure = absl::DeadlineExceededError(
        absl::StrCat("waited ", absl::FormatDuration(deadline), " for ", Report(phase, completion)));
    // The watch logs the failure itself, because the launching thread may be stuck.
    if (phase == Phase::kLaunch) Log(LogLevel::kError, options_.rank, failure.message());
    return Fail(failure);
  }
  if (waited >= limits.warning && checked_before < limits.warning) {
    options_.flights->Of(options_.rank).Record(FlightKind::kWaiting, options.op, options.label, options.bytes);
    Log(LogLevel::kWarning, options_.rank,
        absl::StrCat("has waited ", absl::FormatDuration(limits.warning), " for ", Report(phase, completion)));
  }
  return absl::OkStatus();
}

absl::Duration DeviceWatch::DeadlineOf(Phase phase, const WaitLimits& limits) const {
  if (phase == Phase::kDevice) return limits.deadline;
  return AnswerDeadline({.deadline = std::max(limits.deadline, options_.setup_deadline)});
}

absl::Status DeviceWatch::Fail(const absl::Status& cause) {
  options_.fail_job(cause);
  absl::Status failure = options_.job_failure();
  if (failure.ok()) failure = cause;
  EndAll(failure);
  return failure;
}

void DeviceWatch::SettleAll(const absl::Status& status) {
  std::deque<std::shared_ptr<DeviceCompletion>> queue;
  {
    MutexLock lock(&mu_);
    if (stopped_.ok()) stopped_ = status;
    queue = queue_;
  }
  std::shared_ptr<DeviceCompletion> awaited;
  for (const std::shared_ptr<DeviceCompletion>& completion : queue) {
    completion->Settle(status);
    if (awaited == nullptr && completion->HoldsAStream()) awaited = completion;
  }
  if (awaited != nullptr) Hold(*awaited);
}

void DeviceWatch::Hold(const DeviceCompletion& awaited) {
  const absl::Status failure = options_.job_failure();
  if (failure.ok() || options_.stream_is_held == nullptr) return;
  const DeviceCompletion::Options& bucket = awaited.options();
  const std::string waits =
      absl::StrCat("a stream of the program waits for ", Name(bucket.op), " '", bucket.label, "'");
  if (!bucket.device->Hold(absl::StrCat("the job has failed, and ", waits))) return;
  options_.stream_is_held(absl::StrCat(failure.message(), "; ", waits, ", and must not go on with a wrong result"));
}

void DeviceWatch::EndAll(const absl::Status& status) {
  SettleAll(status);
  if (options_.abort != nullptr) options_.abort();
}

// The device does not tell which rank it waits for, so the report contains the last activity of each rank.
std::string DeviceWatch::Report(Phase phase, const DeviceCompletion& completion) const {
  const DeviceCompletion::Options& options = completion.options();
  constexpr int kNamed = 8;
  std::string report = absl::StrCat(options.device->name(), " of rank ", options_.rank,
                                    phase == Phase::kLaunch ? " to be given " : " to carry out ", Name(options.op),
                                    " '", options.label, "'");
  const int named = std::min(options_.flights->size(), kNamed);
  for (RankId rank = 0; rank < named; ++rank) {
    absl::StrAppend(&report, "; rank ", rank, " ", DescribeLastEvent(options_.flights->Of(rank)));
  }
  return report;
}

void DeviceWatch::Finish(DeviceCompletion& completion) {
  Record(completion);
  bool is_idle = false;
  {
    MutexLock lock(&mu_);
    queue_.pop_front();
    is_idle = queue_.empty();
  }
  if (is_idle && options_.idle != nullptr) options_.idle();
}

void DeviceWatch::Record(DeviceCompletion& completion) {
  const DeviceCompletion::Options& options = completion.options();
  if (completion.launching() != DeviceCompletion::Launching::kWithdrawn) {
    const FlightKind kind = completion.status().ok() ? FlightKind::kFinished : FlightKind::kFailed;
    options_.flights->Of(options_.rank).Record(kind, options.op, options.label, options.bytes);
  }
  if (completion.status().ok() && options_.carried_out != nullptr) options_.carried_out(completion);
}

}  // namespace ronda
