// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/captured_calls.h"

#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(5);

}  // namespace

absl::Status CapturedCall::OrderBefore(StreamHandle stream) const {
  const Device::Current current(device_.get());
  RONDA_ASSIGN_OR_RETURN(const std::optional<uint64_t> id, FindIdOfStream(*device_, stream));
  if (!id.has_value()) return end_->OrderBefore(stream);
  return absl::InvalidArgumentError(
      "it was captured into a CUDA graph, and this stream is not being captured: wait for the operation in the "
      "capture");
}

absl::StatusOr<std::unique_ptr<CapturedCalls>> CapturedCalls::Create(Options options) {
  std::unique_ptr<CapturedCalls> calls(new CapturedCalls(std::move(options)));
  RONDA_RETURN_IF_ERROR(calls->Prepare());
  try {
    calls->thread_ = std::thread([self = calls.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread to watch captured calls: ", error.what()));
  }
  return calls;
}

absl::Status CapturedCalls::Prepare() {
  Device& device = *options_.device;
  constexpr char kPurpose[] = "the words of captured calls";
  RONDA_ASSIGN_OR_RETURN(stream_, DeviceStream::Create(&device));
  RONDA_ASSIGN_OR_RETURN(words_, device.Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, kMost * sizeof(Words), kPurpose));
  RONDA_ASSIGN_OR_RETURN(constants_, device.Allocate(RONDA_CUDA_DEVICE_MEMORY, sizeof(Constants), kPurpose));
  const Constants constants;
  std::memcpy(words_.data(), &constants, sizeof(constants));  // for the copy
  RONDA_RETURN_IF_ERROR(Copy(constants_.data(), words_.data(), sizeof(constants)));
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> copied, device.NewEvent());
  RONDA_RETURN_IF_ERROR(copied->Record(stream_->handle()));
  RONDA_RETURN_IF_ERROR(copied->Wait());
  for (size_t i = 0; i < kMost; ++i) new (&WordsOf(i)) Words{};
  return absl::OkStatus();
}

CapturedCalls::~CapturedCalls() {
  Stop();
  options_.rank_device->Keep(std::move(words_));
  options_.rank_device->Keep(std::move(constants_));
}

void CapturedCalls::Stop() {
  {
    const MutexLock lock(&mu_);
    is_stopped_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

absl::Status CapturedCalls::Copy(void* to, const void* from, size_t bytes) {
  return options_.device->Call(
      "copying", [&](const ronda_cuda_plugin& cuda) { return cuda.copy(to, from, bytes, stream_->handle()); });
}

absl::Status CapturedCalls::Fork(StreamHandle stream) {
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> ready, options_.device->NewEvent());
  RONDA_RETURN_IF_ERROR(ready->Record(stream));
  return ready->OrderBefore(stream_->handle());
}

absl::StatusOr<std::shared_ptr<const CapturedCall>> CapturedCalls::Capture(DirectCall call, DirectTransport& transport,
                                                                           StreamHandle stream) {
  size_t index = 0;
  {
    const MutexLock lock(&mu_);
    index = calls_.size();
    if (index == kMost) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kMost,
          " calls of this process group have been captured into CUDA graphs: make a new group, or capture less"));
    }
    calls_.push_back({.label = std::string(call.info.label), .op = call.info.op, .limits = call.info.limits});
  }
  Words& words = WordsOf(index);
  const auto* const constants = reinterpret_cast<const Constants*>(constants_.data());
  RONDA_RETURN_IF_ERROR(Fork(stream));
  RONDA_RETURN_IF_ERROR(Copy(&words.begun, &constants->begun, sizeof(words.begun)));
  call.stream = stream_->handle();
  if (const absl::Status status = transport.Run(call); !status.ok()) {
    options_.watch.fail_job(status);
    return status;
  }
  RONDA_RETURN_IF_ERROR(Copy(&words, &constants->at_end, sizeof(words)));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> end, options_.device->NewEvent());
  RONDA_RETURN_IF_ERROR(end->Record(stream_->handle()));
  return std::make_shared<const CapturedCall>(options_.device, std::move(end));
}

void CapturedCalls::Run() {
  while (true) {
    try {
      if (!Look()) return;
    } catch (const std::bad_alloc&) {
      // There was too little memory for a report. The next look tries again.
    }
    const MutexLock lock(&mu_);
    if (!is_stopped_) changed_.WaitFor(&mu_, kPeriod);
    if (is_stopped_) return;
  }
}

bool CapturedCalls::Look() {
  absl::Status failure = options_.watch.job_failure();
  if (failure.ok()) {
    const MutexLock lock(&mu_);
    for (size_t i = 0; i < calls_.size() && failure.ok(); ++i) failure = LookAt(i, calls_[i]);
  }
  if (failure.ok()) return true;
  options_.watch.fail_job(failure);  // has no effect if the job has failed before
  HoldDevice();
  return false;
}

// Between two looks, the device may end the call and begin it again. So the call has been running for too long only if
// `begun` is set and `ended` stays 0. If the host sets `ended` to 0 just after the device has set it to 1, the host
// misses this end. But then `begun` becomes 0, or the next end sets `ended` again.
absl::Status CapturedCalls::LookAt(size_t index, Call& call) const {
  Words& words = WordsOf(index);
  if (words.begun.load(std::memory_order_acquire) == 0) {
    call.launch = Call::Launch::kNone;
    return absl::OkStatus();
  }
  if (call.launch == Call::Launch::kNone || words.ended.load(std::memory_order_acquire) != 0) {
    words.ended.store(0, std::memory_order_release);
    call.launch = Call::Launch::kSeen;
    call.seen_at = MonotonicTime();
    return absl::OkStatus();
  }
  const absl::Duration waited = MonotonicTime() - call.seen_at;
  if (waited >= call.limits.deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat("waited ", absl::FormatDuration(call.limits.deadline), " for ", Report(call)));
  }
  if (waited >= call.limits.warning && call.launch == Call::Launch::kSeen) {
    call.launch = Call::Launch::kReported;
    options_.watch.flights->Of(options_.watch.rank).Record(FlightKind::kWaiting, call.op, call.label, 0);
    Log(LogLevel::kWarning, options_.watch.rank,
        absl::StrCat("has waited ", absl::FormatDuration(call.limits.warning), " for ", Report(call)));
  }
  return absl::OkStatus();
}

std::string CapturedCalls::Report(const Call& call) const {
  return absl::StrCat(options_.device->name(), " of rank ", options_.watch.rank, " to carry out ", Name(call.op), " '",
                      call.label, "' of a CUDA graph: every rank must launch the graph of this capture");
}

void CapturedCalls::HoldDevice() {
  {
    const MutexLock lock(&mu_);
    if (calls_.empty()) return;
  }
  constexpr char kWhy[] = "CUDA graphs of the program have collectives, and must not go on with a wrong result";
  if (!options_.device->Hold(absl::StrCat("the job has failed, and ", kWhy))) return;
  const std::string why = absl::StrCat(options_.watch.job_failure().message(), "; ", kWhy);
  if (options_.watch.stream_is_held != nullptr) {
    options_.watch.stream_is_held(why);
  } else {
    Log(LogLevel::kError, options_.watch.rank,
        absl::StrCat(why, ": a graph that waits for another rank never ends, so end this process"));
  }
}

}  // namespace ronda
