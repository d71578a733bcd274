#include "runtime/engine/device/device_watch.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {
namespace {

constexpr absl::Duration kSpin = absl::Microseconds(20);
constexpr absl::Duration kShortestNap = absl::Microseconds(20);
constexpr absl::Duration kLongestNap = absl::Microseconds(100);
// Failures are looked for less often than the device is asked.
constexpr absl::Duration kCheckPeriod = absl::Milliseconds(1);

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

void DeviceWatch::Watch(std::shared_ptr<DeviceCompletion> completion, Waiting waiting) {
  absl::Status stopped;
  {
    MutexLock lock(&mu_);
    stopped = stopped_;
    if (stopped.ok()) queue_.push_back({.completion = completion, .waiting = waiting});
  }
  if (stopped.ok()) return changed_.NotifyAll();
  completion->Settle(stopped);
}

bool DeviceWatch::idle() const {
  MutexLock lock(&mu_);
  return queue_.empty();
}

void DeviceWatch::Stop(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    if (stopped_.ok()) stopped_ = status;
  }
  SettleAll(status);
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

absl::Status DeviceWatch::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

void DeviceWatch::Run() {
  while (true) {
    const Watched next = AwaitNext();
    if (next.completion == nullptr) return;
    Settle(*next.completion);
    Finish(next);
  }
}

DeviceWatch::Watched DeviceWatch::AwaitNext() {
  MutexLock lock(&mu_);
  while (queue_.empty() && stopped_.ok()) changed_.Wait(&mu_);
  return queue_.empty() ? Watched() : queue_.front();
}

void DeviceWatch::Settle(DeviceCompletion& completion) {
  const absl::Duration began = MonotonicTime();
  absl::Duration checked = absl::ZeroDuration();
  while (failure_.ok() && !completion.done()) {
    const absl::Duration waited = MonotonicTime() - began;
    if (waited - checked >= kCheckPeriod) {
      failure_ = Check(completion, waited, checked);
      checked = waited;
    }
    if (failure_.ok() && waited >= kSpin) Nap(waited);
  }
  if (failure_.ok() && !completion.status().ok()) failure_ = Fail(completion.status());
  if (!failure_.ok()) completion.Settle(failure_);
}

void DeviceWatch::Nap(absl::Duration waited) {
  MutexLock lock(&mu_);
  if (stopped_.ok()) changed_.WaitFor(&mu_, std::clamp(waited / 4, kShortestNap, kLongestNap));
}

absl::Status DeviceWatch::Check(const DeviceCompletion& completion, absl::Duration waited,
                                absl::Duration checked_before) {
  const DeviceCompletion::Options& options = completion.options();
  absl::Status failure = options_.job_failure();
  if (failure.ok()) failure = stopped();
  if (!failure.ok()) {
    EndAll(failure);
    return failure;
  }
  if (options_.transport_failure != nullptr) failure = options_.transport_failure();
  if (!failure.ok()) return Fail(failure);
  if (waited >= options.limits.deadline) {
    return Fail(absl::DeadlineExceededError(
        absl::StrCat("waited ", absl::FormatDuration(options.limits.deadline), " for ", Report(completion))));
  }
  if (waited >= options.limits.warning && checked_before < options.limits.warning) {
    options_.flights->Of(options_.rank).Record(FlightKind::kWaiting, options.op, options.label, options.bytes);
    Log(LogLevel::kWarning, options_.rank,
        absl::StrCat("has waited ", absl::FormatDuration(options.limits.warning), " for ", Report(completion)));
  }
  return absl::OkStatus();
}

absl::Status DeviceWatch::Fail(const absl::Status& cause) {
  options_.fail_job(cause);
  absl::Status failure = options_.job_failure();
  if (failure.ok()) failure = cause;
  EndAll(failure);
  return failure;
}

void DeviceWatch::SettleAll(const absl::Status& status) {
  std::deque<Watched> queue;
  {
    MutexLock lock(&mu_);
    queue = queue_;
  }
  for (const Watched& watched : queue) watched.completion->Settle(status);
}

void DeviceWatch::EndAll(const absl::Status& status) {
  SettleAll(status);
  if (options_.abort != nullptr) options_.abort();
}

// Which rank keeps the device waiting cannot be asked of it: what each did last tells.
std::string DeviceWatch::Report(const DeviceCompletion& completion) const {
  const DeviceCompletion::Options& options = completion.options();
  constexpr int kNamed = 8;
  std::string report = absl::StrCat(options.device->name(), " of rank ", options_.rank, " to carry out ",
                                    Name(options.op), " '", options.label, "'");
  const int named = std::min(options_.flights->size(), kNamed);
  for (RankId rank = 0; rank < named; ++rank) {
    absl::StrAppend(&report, "; rank ", rank, " ", DescribeLastAct(options_.flights->Of(rank)));
  }
  return report;
}

void DeviceWatch::Finish(const Watched& watched) {
  const DeviceCompletion::Options& options = watched.completion->options();
  const FlightKind kind = watched.completion->status().ok() ? FlightKind::kFinished : FlightKind::kFailed;
  options_.flights->Of(options_.rank).Record(kind, options.op, options.label, options.bytes);
  bool is_idle = false;
  {
    MutexLock lock(&mu_);
    queue_.pop_front();
    is_idle = queue_.empty();
  }
  if (watched.waiting == Waiting::kEngine && options_.settled != nullptr) options_.settled();
  if (is_idle && options_.idle != nullptr) options_.idle();
}

}  // namespace ronda
