// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_PROGRESS_ENGINE_H_
#define RONDA_RUNTIME_ENGINE_PROGRESS_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"

namespace ronda {

// Carries out a rank's operations, one step at a time. Only one thread at a time makes steps: the progress thread. It
// is the background thread, or a trainer thread that would otherwise only sleep until the background thread has done
// the work.
//
// A thread that makes steps drives the engine. The background thread drives when the rank's doorbell has rung or a
// deadline has passed. It then makes all steps that are possible, and sleeps again. If no other thread drives, a thread
// that waits for a handle drives until the handle is complete or nothing is left to do. It then polls for messages for
// a while, because a message usually arrives sooner than a wake-up would take. A woken background thread would also
// compete with it for a core.
//
// Why no wake-up is lost. Messages, a shutdown and failures come from other threads and ranks. They ring the doorbell,
// and only the background thread reacts to it. If another thread drives when the doorbell rings, the background thread
// leaves a note (Note) and sleeps again. The driving thread then either makes a whole step, which finds the reason for
// the ring, or rings the doorbell again when it stops. When a thread stops driving, it also rings the doorbell if a
// bucket may begin, if a deadline comes before the end of the background thread's sleep, or if the job is over. After a
// submission, the submitting thread tries to drive. If it succeeds, it does the work (Drive), or only checks whether
// there is work (OnSubmission). If another thread drives, it rings the doorbell.
//
// Why not every submission wakes the background thread. Some programs wait for each tensor as soon as they have
// submitted it, so their own threads drive. A background thread that woke for each submission, or that waited for its
// turn to drive, would only compete with them for a core. So after a program has waited immediately a few times, its
// submissions no longer ring the doorbell. Instead the background thread sleeps for short times. After each short sleep
// it looks for work, because the program may not have waited this time. The short sleeps end when no step was made
// between two looks.
//
// Thread-safe. A Runtime and its handles share this object. The Runtime disconnects the engine, and the handles may
// outlive the Runtime.
class ProgressEngine {
 public:
  // The steps by which a rank makes progress. Only the progress thread calls these functions, but any thread may call
  // Wake.
  class Steps {
   public:
    virtual ~Steps() = default;

    // Makes the next step that is possible.
    enum class Progress { kNone, kSome, kOver };
    virtual Progress Advance() = 0;

    // Processes the new submissions, if they depend on nothing else. The last of them was made at `now`. Returns kSome
    // if the rank will send them together with later submissions, so that the program will not wait for them yet.
    // Otherwise returns kNone or kOver.
    virtual Progress OnSubmission(absl::Time now) = 0;

    // Returns the time at which Advance must be called again even if the doorbell does not ring. Returns the infinite
    // past if a step is possible now.
    virtual absl::Time NextDeadline() = 0;

    // Rings the doorbell.
    virtual void Wake() = 0;

    // A waiting thread calls StartPolling before it makes steps. If this returns true, the thread may go on even if no
    // step is possible. Until it stops polling, no other thread reacts to the doorbell. The thread calls KeepPolling
    // before each further step, until KeepPolling returns false, and then StopPolling. After that, the background
    // thread reacts to all rings since the last step began.
    virtual bool StartPolling() = 0;
    virtual bool KeepPolling() = 0;
    virtual void StopPolling() = 0;
  };

  explicit ProgressEngine(const Clock* clock) : clock_(clock), wait_heuristic_(clock) {}

  // Sets the steps that the engine makes. `steps` is not owned. Must be called once, before the background thread
  // starts.
  void Connect(Steps* steps);

  // Waits until no thread drives. No thread makes a step afterwards.
  void Disconnect();

  // Makes steps until none is possible. Only the background thread may call this function. Returns when it must be
  // called again at the latest, or nullopt if the job is over.
  // REQUIRES: Connect has been called, and Disconnect has not.
  std::optional<absl::Time> DriveUntilIdle();

  // Returns whether a trainer thread will probably make the next step.
  bool expects_trainer() const { return wait_heuristic_.waits_at_once(); }

  // Drives until `done` returns true, or until no step has been possible for a while. For a thread that would otherwise
  // wait. Returns kBusy if another thread drives.
  enum class Attempt { kDriven, kBusy };
  Attempt Drive(absl::FunctionRef<bool()> done);

  // Must be called when a tensor was submitted at `now` and no thread waits for it yet. Wakes the background thread if
  // a step is possible, unless a thread will probably wait for the tensor immediately.
  Attempt OnSubmission(absl::Time now);

  // Waits until `done` returns true. First drives. If another thread drives, yields its core for a moment instead. Then
  // calls `block` if `done` is still false. `block` must return when `done` is true. Neither `done` nor `block` may
  // call this object.
  void Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block);

  // How many threads are in Await.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // Returns how long the program has waited so far, in CheapTicks(). This is the time that threads have spent in Drive,
  // and in Await if they had to wait. If several threads are in Await at once, the time counts once.
  uint64_t exposed_ticks() const {
    return exposed_ticks_.load(std::memory_order_relaxed) + driven_ticks_.load(std::memory_order_relaxed);
  }

  // Counts how often the program has learned that an operation is complete. If the count stays the same while the
  // program submits several tensors, none of these submissions has waited for the completion of another. A thread that
  // learns of a completion from another thread also sees the new count.
  void RecordLearned() { learned_of_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t learned_of() const { return learned_of_.load(std::memory_order_relaxed); }

 private:
  // A lock that gives one thread at a time the right to drive. The background thread does not wait for the lock, but
  // leaves a note in it.
  class ABSL_LOCKABLE DriverMutex {
   public:
    // What the background thread does while another thread drives. It first sleeps briefly. If it has found the driving
    // thread in the same step twice, it sleeps until the doorbell rings.
    enum class Note { kNone, kSleepsBriefly, kSleeps };

    bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
    // If the lock is free, takes it and returns true. If another thread drives, leaves a note, stores it in `note`, and
    // returns false.
    bool TryLockOrLeaveNote(Note* note) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
    void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
    // Returns the note that was left since the last call. REQUIRES: this thread holds the lock.
    Note ReadNote();
    // Releases the lock. Returns the unread note.
    [[nodiscard]] Note Unlock() ABSL_UNLOCK_FUNCTION();

   private:
    static constexpr int kFree = -1;  // otherwise a Note
    // One atomic number contains both the lock and the note. So either the thread that releases the lock finds the
    // note, or the background thread finds the lock free.
    std::atomic<int> state_{kFree};
  };

  // Guesses whether the program waits for each tensor immediately after it has submitted the tensor. The guess may be
  // wrong if several threads submit tensors.
  class WaitHeuristic {
   public:
    explicit WaitHeuristic(const Clock* clock) : clock_(clock) {}

    void Submitted(absl::Time now);
    // Must be called when a thread begins to wait.
    void Waits();
    // Checks whether the program has failed to wait in time. Called by the background thread.
    void Look();
    bool waits_at_once() const { return evidence_.load(std::memory_order_relaxed) >= kEnoughEvidence; }

   private:
    // kEnoughEvidence immediate waits suffice for the guess, and at most kMostEvidence of them count. Each wait that is
    // not immediate subtracts kCounterEvidence.
    static constexpr int kEnoughEvidence = 8;
    static constexpr int kMostEvidence = 12;
    static constexpr int kCounterEvidence = 3;

    bool IsAtOnce() const;
    void Learn(bool at_once);

    const Clock* const clock_;
    std::atomic<int> evidence_{0};
    std::atomic<int> submitted_{0};     // since a thread last began to wait
    std::atomic<int64_t> since_ns_{0};  // when the last of these was submitted
  };

  // Releases driver_mutex_, and rings the doorbell if the background thread has left a note or must_ring_ is set.
  void StopAndRing() ABSL_UNLOCK_FUNCTION(driver_mutex_);
  // Returns when the background thread's sleep ends after it has left `note`.
  absl::Time EndOfSleep(DriverMutex::Note note) const;
  absl::Time SleepTimeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  // Drives as soon as no other thread drives, but gives up after a short time.
  void DriveSoon(absl::FunctionRef<bool()> done);
  void DriveLocked(absl::FunctionRef<bool()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  // Must be called after a blocking call that drove from `began` to `ended`, both in CheapTicks(). Guesses whether the
  // program will make its next blocking call immediately: it will if the time between the last two calls was no longer
  // than the earlier of these calls.
  void RecordCallLocked(uint64_t began, uint64_t ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  void OnSubmissionLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  // Must be called when this thread stops driving. `progress` is the result of the thread's last step.
  void StopDrivingLocked(Steps::Progress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);

  const Clock* const clock_;
  DriverMutex driver_mutex_;  // held by the progress thread
  Steps* steps_ ABSL_GUARDED_BY(driver_mutex_) = nullptr;
  bool over_ ABSL_GUARDED_BY(driver_mutex_) = false;
  // When the background thread's sleep ends. The infinite past means that it will certainly drive soon.
  absl::Time sleeps_until_ ABSL_GUARDED_BY(driver_mutex_) = absl::InfinitePast();
  bool must_ring_ ABSL_GUARDED_BY(driver_mutex_) = false;  // when the right to drive is given back
  bool driven_ ABSL_GUARDED_BY(driver_mutex_) = false;     // by another thread, since the background thread's last look
  // The end and the duration of the last blocking call, in CheapTicks().
  uint64_t last_call_ended_ ABSL_GUARDED_BY(driver_mutex_) = 0;
  uint64_t last_call_took_ ABSL_GUARDED_BY(driver_mutex_) = 0;
  bool returns_at_once_ ABSL_GUARDED_BY(driver_mutex_) = false;  // the driving thread will drive again soon
  WaitHeuristic wait_heuristic_;
  std::atomic<int> ringing_{0};  // threads that have stopped driving, or are about to, and may still ring
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> wait_began_{0};     // CheapTicks() when the first of the waiting threads began
  std::atomic<uint64_t> exposed_ticks_{0};  // in Await
  std::atomic<uint64_t> driven_ticks_{0};   // in Drive but outside Await; written by the thread that drives
  std::atomic<uint64_t> learned_of_{0};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_PROGRESS_ENGINE_H_
