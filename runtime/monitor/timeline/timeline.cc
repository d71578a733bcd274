#include "runtime/monitor/timeline/timeline.h"

#include <utility>

#include "absl/status/statusor.h"
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
  if (memory_ == nullptr) memory_ = std::make_unique<EventQueue>(kEvents);
  auto writer = TimelineWriter::Start(options, memory_.get());
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
