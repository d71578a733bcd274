#include "runtime/engine/engine_driver.h"

namespace ronda {

void EngineDriver::Connect(Engine* engine) {
  MutexLock turn(&turn_);
  engine_ = engine;
}

void EngineDriver::Disconnect() {
  MutexLock turn(&turn_);
  engine_ = nullptr;
}

std::optional<absl::Time> EngineDriver::DriveUntilIdle() {
  MutexLock turn(&turn_);
  while (!over_) {
    const Engine::Progress progress = engine_->Advance();
    over_ = progress == Engine::Progress::kOver;
    if (progress != Engine::Progress::kNone) continue;
    sleeps_until_ = engine_->NextDeadline();
    return sleeps_until_;
  }
  return std::nullopt;
}

EngineDriver::Turn EngineDriver::Drive(absl::FunctionRef<bool()> done) {
  if (!turn_.TryLock()) return Turn::kBusy;
  if (engine_ != nullptr && !over_) DriveLocked(done);
  turn_.Unlock();
  return Turn::kTaken;
}

void EngineDriver::DriveLocked(absl::FunctionRef<bool()> done) {
  Engine::Progress progress = Engine::Progress::kSome;
  while (progress == Engine::Progress::kSome && !done()) progress = engine_->Advance();
  LeaveRestLocked(progress);
}

EngineDriver::Turn EngineDriver::TakeNote(absl::Time now) {
  if (!turn_.TryLock()) return Turn::kBusy;
  if (engine_ != nullptr && !over_) LeaveRestLocked(engine_->TakeNote(now));
  turn_.Unlock();
  return Turn::kTaken;
}

void EngineDriver::LeaveRestLocked(Engine::Progress progress) {
  over_ = progress == Engine::Progress::kOver;
  if (!over_ && engine_->NextDeadline() >= sleeps_until_) return;
  sleeps_until_ = absl::InfinitePast();
  engine_->Wake();
}

void EngineDriver::Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block) {
  if (done()) return;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  Drive(done);
  if (!done()) block();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace ronda
