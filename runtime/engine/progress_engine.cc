// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/progress_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/clock.h"

namespace ronda {
namespace {

// The length of the background thread's short sleep. If the guess that the program waits immediately is wrong, a tensor
// is delayed by at most this time.
constexpr absl::Duration kShortSleep = absl::Milliseconds(1);
// A wait is immediate if it begins at most this long after the submission. The limit is several times the usual delay
// of a thread that is preempted between the two.
constexpr int64_t kAtOnceNs = 200'000;
// A waiting thread yields its core to the driving thread this many times before it sleeps.
constexpr int kYields = 64;

}  // namespace

bool ProgressEngine::DriverMutex::TryLock() {
  int free = kFree;
  return state_.compare_exchange_strong(free, static_cast<int>(Note::kNone), std::memory_order_acquire,
                                        std::memory_order_relaxed);
}

bool ProgressEngine::DriverMutex::TryLockOrLeaveNote(Note* note) {
  int found = kFree;
  int next;
  do {
    // The state changes from kFree to kNone or, if another thread holds the lock, to the next note.
    next = std::min(found + 1, static_cast<int>(Note::kSleeps));
  } while (!state_.compare_exchange_weak(found, next, std::memory_order_acq_rel, std::memory_order_relaxed));
  *note = static_cast<Note>(next);
  return found == kFree;
}

void ProgressEngine::DriverMutex::Lock() {
  for (Note note; !TryLockOrLeaveNote(&note);) state_.wait(static_cast<int>(note), std::memory_order_relaxed);
}

ProgressEngine::DriverMutex::Note ProgressEngine::DriverMutex::ReadNote() {
  const int none = static_cast<int>(Note::kNone);
  if (state_.load(std::memory_order_relaxed) == none) return Note::kNone;
  const auto note = static_cast<Note>(state_.exchange(none, std::memory_order_acquire));
  state_.notify_all();
  return note;
}

ProgressEngine::DriverMutex::Note ProgressEngine::DriverMutex::Unlock() {
  const auto note = static_cast<Note>(state_.exchange(kFree, std::memory_order_acq_rel));
  if (note != Note::kNone) state_.notify_all();
  return note;
}

void ProgressEngine::WaitHeuristic::Submitted(absl::Time now) {
  since_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed);
  submitted_.fetch_add(1, std::memory_order_relaxed);
}

void ProgressEngine::WaitHeuristic::Waits() {
  const int submitted = submitted_.load(std::memory_order_relaxed);
  if (submitted == 0) return;
  submitted_.store(0, std::memory_order_relaxed);
  if (submitted == 1 && waits_at_once()) return;
  Learn(submitted == 1 && IsAtOnce());
}

void ProgressEngine::WaitHeuristic::Look() {
  if (submitted_.load(std::memory_order_relaxed) > 0 && !IsAtOnce()) Learn(false);
}

void ProgressEngine::WaitHeuristic::Learn(bool at_once) {
  const int evidence = evidence_.load(std::memory_order_relaxed);
  evidence_.store(at_once ? std::min(evidence + 1, kMostEvidence) : std::max(evidence - kCounterEvidence, 0),
                  std::memory_order_relaxed);
}

bool ProgressEngine::WaitHeuristic::IsAtOnce() const {
  return absl::ToUnixNanos(clock_->Now()) - since_ns_.load(std::memory_order_relaxed) <= kAtOnceNs;
}

void ProgressEngine::Connect(Steps* steps) {
  driver_mutex_.Lock();
  steps_ = steps;
  StopAndRing();
}

void ProgressEngine::Disconnect() {
  driver_mutex_.Lock();
  steps_ = nullptr;
  StopAndRing();
  // A thread that has released the lock may still be about to ring through `steps_`.
  for (int left; (left = ringing_.load(std::memory_order_acquire)) != 0;) ringing_.wait(left);
}

// The lock is released before the doorbell rings, because the background thread may start on this core immediately.
void ProgressEngine::StopAndRing() {
  Steps* const steps = steps_;
  const bool must_ring = std::exchange(must_ring_, false);
  const bool returns_at_once = std::exchange(returns_at_once_, false);
  ringing_.fetch_add(1, std::memory_order_relaxed);
  const DriverMutex::Note note = driver_mutex_.Unlock();
  // A thread that will drive again immediately does not ring: otherwise the background thread would wake, find the
  // thread driving, and leave another note, again and again. The thread's next step does the work for which the
  // background thread came. If there is no next step, the background thread does the work after its short sleep.
  const bool is_called =
      note == DriverMutex::Note::kSleeps || (note == DriverMutex::Note::kSleepsBriefly && !returns_at_once);
  if (steps != nullptr && (must_ring || is_called)) steps->Wake();
  if (ringing_.fetch_sub(1, std::memory_order_release) == 1) ringing_.notify_all();
}

std::optional<absl::Time> ProgressEngine::DriveUntilIdle() {
  DriverMutex::Note note;
  if (!driver_mutex_.TryLockOrLeaveNote(&note)) return EndOfSleep(note);
  wait_heuristic_.Look();
  Steps::Progress progress = Steps::Progress::kSome;
  while (!over_ && progress != Steps::Progress::kNone) {
    progress = steps_->Advance();
    over_ = progress == Steps::Progress::kOver;
  }
  std::optional<absl::Time> sleeps_until;
  if (!over_) sleeps_until = sleeps_until_ = SleepTimeLocked();
  StopAndRing();
  return sleeps_until;
}

absl::Time ProgressEngine::EndOfSleep(DriverMutex::Note note) const {
  return note == DriverMutex::Note::kSleepsBriefly ? clock_->Now() + kShortSleep : absl::InfiniteFuture();
}

absl::Time ProgressEngine::SleepTimeLocked() {
  const absl::Time deadline = steps_->NextDeadline();
  const bool sleeps_briefly = std::exchange(driven_, false) && wait_heuristic_.waits_at_once();
  return sleeps_briefly ? std::min(deadline, clock_->Now() + kShortSleep) : deadline;
}

ProgressEngine::Attempt ProgressEngine::Drive(absl::FunctionRef<bool()> done) {
  if (!driver_mutex_.TryLock()) return Attempt::kBusy;
  const bool is_counted = waiting() > 0;  // already, in Await
  const uint64_t began = is_counted ? 0 : CheapTicks();
  if (steps_ != nullptr && !over_) DriveLocked(done);
  if (!is_counted) {
    const uint64_t now = CheapTicks(), before = driven_ticks_.load(std::memory_order_relaxed);
    driven_ticks_.store(before + now - std::min(now, began), std::memory_order_relaxed);
    RecordCallLocked(began, now);
  }
  StopAndRing();
  return Attempt::kDriven;
}

void ProgressEngine::RecordCallLocked(uint64_t began, uint64_t ended) {
  returns_at_once_ = began - last_call_ended_ <= last_call_took_;
  last_call_took_ = ended - began;
  last_call_ended_ = ended;
}

void ProgressEngine::DriveLocked(absl::FunctionRef<bool()> done) {
  driven_ = true;
  Steps::Progress progress = Steps::Progress::kSome;
  const bool polls = steps_->StartPolling();
  while (progress != Steps::Progress::kOver && !done()) {
    if (progress == Steps::Progress::kNone && !(polls && steps_->KeepPolling())) break;
    // The next step does the work for which the background thread came.
    const DriverMutex::Note note = driver_mutex_.ReadNote();
    if (note != DriverMutex::Note::kNone) sleeps_until_ = EndOfSleep(note);
    progress = steps_->Advance();
  }
  if (polls) steps_->StopPolling();
  StopDrivingLocked(progress);
}

ProgressEngine::Attempt ProgressEngine::OnSubmission(absl::Time now) {
  if (!driver_mutex_.TryLock()) return Attempt::kBusy;
  if (steps_ != nullptr && !over_) OnSubmissionLocked(now);
  StopAndRing();
  return Attempt::kDriven;
}

void ProgressEngine::OnSubmissionLocked(absl::Time now) {
  const Steps::Progress progress = steps_->OnSubmission(now);
  if (progress != Steps::Progress::kSome) wait_heuristic_.Submitted(now);
  const bool comes_soon = sleeps_until_ <= now + kShortSleep && wait_heuristic_.waits_at_once();
  if (progress == Steps::Progress::kOver || !comes_soon) StopDrivingLocked(progress);
}

void ProgressEngine::StopDrivingLocked(Steps::Progress progress) {
  over_ = progress == Steps::Progress::kOver;
  if (!over_ && steps_->NextDeadline() >= sleeps_until_) return;
  sleeps_until_ = absl::InfinitePast();
  must_ring_ = true;
}

void ProgressEngine::Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block) {
  wait_heuristic_.Waits();
  if (done()) return;
  // The first thread that begins to wait stores the time, and the last thread that stops waiting reads it. The atomic
  // operations on waiting_ make the time visible.
  if (waiting_.fetch_add(1, std::memory_order_relaxed) == 0) {
    wait_began_.store(CheapTicks(), std::memory_order_relaxed);
  }
  DriveSoon(done);
  if (!done()) block();
  if (waiting_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const uint64_t now = CheapTicks(), began = wait_began_.load(std::memory_order_relaxed);
  // Another thread may just have begun to wait and stored a later time, so `began` may be greater than `now`.
  exposed_ticks_.fetch_add(now - std::min(now, began), std::memory_order_relaxed);
}

// Yields a few times, because often the background thread has just begun the step for which this thread waits.
void ProgressEngine::DriveSoon(absl::FunctionRef<bool()> done) {
  for (int i = 0; Drive(done) == Attempt::kBusy && !done() && i < kYields; ++i) std::this_thread::yield();
}

}  // namespace ronda
