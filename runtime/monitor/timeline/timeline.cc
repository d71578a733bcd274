#include "runtime/monitor/timeline/timeline.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

// 2 MiB. As many as a step of 5,000 tensors has, and a writer that has not come to the CPU for a while may find.
constexpr size_t kEvents = size_t{1} << 14;

}  // namespace

absl::Status Timeline::Start(const TimelineWriter::Options& options) {
  {
    MutexLock lock(&mu_);
    while (state_ == State::kChanging) changed_.Wait(&mu_);
    if (state_ == State::kOn) {
      return absl::FailedPreconditionError(
          absl::StrCat("a timeline is being written to ", writer_->path(), " already: stop it first"));
    }
    state_ = State::kChanging;
  }
  auto writer = StartWriter(options);
  const absl::Status status = writer.status();
  if (status.ok()) {
    writer_ = *std::move(writer);
    queue_.store(memory_.get(), std::memory_order_release);
  }
  MutexLock lock(&mu_);
  state_ = status.ok() ? State::kOn : State::kOff;
  changed_.NotifyAll();
  return status;
}

absl::StatusOr<std::unique_ptr<TimelineWriter>> Timeline::StartWriter(const TimelineWriter::Options& options) {
  try {
    if (memory_ == nullptr) memory_ = std::make_unique<EventQueue>(kEvents);
    return TimelineWriter::Start(options, memory_.get());
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  }
}

void Timeline::Stop() {
  {
    MutexLock lock(&mu_);
    while (state_ == State::kChanging) changed_.Wait(&mu_);
    if (state_ == State::kOff) return;
    state_ = State::kChanging;
  }
  queue_.store(nullptr, std::memory_order_relaxed);
  writer_.reset();
  MutexLock lock(&mu_);
  state_ = State::kOff;
  changed_.NotifyAll();
}

}  // namespace ronda
