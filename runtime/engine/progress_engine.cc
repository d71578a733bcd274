#include "runtime/engine/progress_engine.h"

namespace ronda {

void ProgressEngine::Connect(Steps* steps) {
  MutexLock lock(&mu_);
  steps_ = steps;
}

void ProgressEngine::Disconnect() {
  MutexLock lock(&mu_);
  steps_ = nullptr;
}

std::optional<absl::Time> ProgressEngine::DriveUntilIdle() {
  MutexLock lock(&mu_);
  while (!over_) {
    const Steps::Progress progress = steps_->Advance();
    over_ = progress == Steps::Progress::kOver;
    if (progress != Steps::Progress::kNone) continue;
    sleeps_until_ = steps_->NextDeadline();
    return sleeps_until_;
  }
  return std::nullopt;
}

ProgressEngine::Attempt ProgressEngine::Drive(absl::FunctionRef<bool()> done) {
  if (!mu_.TryLock()) return Attempt::kBusy;
  if (steps_ != nullptr && !over_) DriveLocked(done);
  mu_.Unlock();
  return Attempt::kDriven;
}

void ProgressEngine::DriveLocked(absl::FunctionRef<bool()> done) {
  Steps::Progress progress = Steps::Progress::kSome;
  const bool polls = steps_->StartPolling();
  while (progress != Steps::Progress::kOver && !done()) {
    if (progress == Steps::Progress::kNone && !(polls && steps_->KeepPolling())) break;
    progress = steps_->Advance();
  }
  if (polls) steps_->StopPolling();
  StopDrivingLocked(progress);
}

ProgressEngine::Attempt ProgressEngine::TakeNote(absl::Time now) {
  if (!mu_.TryLock()) return Attempt::kBusy;
  if (steps_ != nullptr && !over_) StopDrivingLocked(steps_->TakeNote(now));
  mu_.Unlock();
  return Attempt::kDriven;
}

void ProgressEngine::StopDrivingLocked(Steps::Progress progress) {
  over_ = progress == Steps::Progress::kOver;
  if (!over_ && steps_->NextDeadline() >= sleeps_until_) return;
  sleeps_until_ = absl::InfinitePast();
  steps_->Wake();
}

void ProgressEngine::Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block) {
  if (done()) return;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  Drive(done);
  if (!done()) block();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace ronda
