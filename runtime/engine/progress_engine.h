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

// Moves a rank's operations forward, one step at a time and on one thread at a time: the progress thread. That is the
// background thread, or a trainer thread that would otherwise sleep until the background thread has done its work.
//
// The background thread drives when the rank's doorbell has rung or a deadline has passed. It does everything that can
// be done and sleeps again. If no other thread drives, a thread that waits for a handle drives, until its handle
// is complete or nothing is left to do. The thread then polls for messages for a while. A wake-up usually takes longer
// than the messages do, and a woken background thread would compete with the waiting thread for its core.
//
// Why no wake-up is lost. Messages, a shutdown and failures come from other threads and ranks. All of these ring the
// doorbell, and only the background thread reacts to the doorbell. If another thread drives at that time, the
// background thread leaves a note (Note) and sleeps again. The other thread then either makes a whole step, which finds
// the reason for the ring, or rings again when it stops. Work inside the engine (a bucket that may begin, a deadline
// before the end of the background thread's sleep) is found by every thread that stops driving; that thread then rings
// the doorbell. After a submission, the submitting thread tries to drive, either to do the work (Drive) or only to see
// whether there is any work (OnSubmission). If another thread drives, the submitting thread rings.
//
// Why the background thread stays away. Some programs wait for each tensor as soon as they have submitted it, and drive
// by themselves. If each submission woke the background thread, or if that thread queued for the right to drive, it
// would only compete with the waiting thread for its core. So after a program has waited at once a few times, its
// submissions no longer ring. Instead the background thread takes short sleeps. After each of them it looks for work,
// in case the program does not wait this time. The short sleeps end when nothing has been done between two looks.
//
// Thread-safe. An engine and its handles share this object. The engine disconnects it; the handles may outlive the
// engine.
class ProgressEngine {
 public:
  // The steps that make progress. Only the progress thread calls them, except Wake.
  class Steps {
   public:
    virtual ~Steps() = default;

    // Does the next thing that is ready.
    enum class Progress { kNone, kSome, kOver };
    virtual Progress Advance() = 0;

    // Looks at new submissions, the last of which was made at `now`, and processes them if they need nothing else.
    // Returns kSome if the program will not wait for these submissions, because they travel with the next ones.
    // Otherwise returns kNone or kOver.
    virtual Progress OnSubmission(absl::Time now) = 0;

    // Returns when Advance must be called again even if the doorbell does not ring; the infinite past if something is
    // ready.
    virtual absl::Time NextDeadline() = 0;

    // Rings the doorbell.
    virtual void Wake() = 0;

    // Called when a waiting thread is about to make steps. If StartPolling returns true, the thread may continue while
    // nothing is ready, and only this thread reacts to the doorbell. The thread calls KeepPolling before each further
    // step, until KeepPolling returns false, and then StopPolling. After that the background thread reacts to all rings
    // since the last step began.
    virtual bool StartPolling() = 0;
    virtual bool KeepPolling() = 0;
    virtual void StopPolling() = 0;
  };

  explicit ProgressEngine(const Clock* clock) : clock_(clock), wait_heuristic_(clock) {}

  // `steps` is not owned. Call once, before the background thread begins.
  void Connect(Steps* steps);

  // Waits until no thread drives. After that no thread makes a step.
  void Disconnect();

  // For the background thread: makes steps until nothing is ready. Returns when to come again at the latest; nullopt if
  // the job is over.
  // REQUIRES: connected.
  std::optional<absl::Time> DriveUntilIdle();

  // Whether a trainer thread is likely to make the next step.
  bool expects_trainer() const { return wait_heuristic_.waits_at_once(); }

  // For a thread that will wait: drives until `done`, or until nothing has been ready for a while. kBusy: another
  // thread drives.
  enum class Attempt { kDriven, kBusy };
  Attempt Drive(absl::FunctionRef<bool()> done);

  // A tensor was submitted at `now`, and no thread waits for it yet. Wakes the background thread if something is ready,
  // unless a thread is expected to wait for the tensor at once.
  Attempt OnSubmission(absl::Time now);

  // Waits for `done`. Drives; if another thread drives, yields to it for a moment. Then calls `block`, which returns
  // when `done` is true. Neither function may call this object.
  void Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block);

  // How many threads are in Await.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // How long threads have been in Drive, or in Await where they had to wait, in CheapTicks(). Time that several threads
  // spend in Await together is counted once.
  uint64_t exposed_ticks() const {
    return exposed_ticks_.load(std::memory_order_relaxed) + driven_ticks_.load(std::memory_order_relaxed);
  }

  // Counts how often the program has learned that an operation is complete. If it submits tensors while the count stays
  // the same, none of them waits for an operation that was submitted before. An event that tells another thread of a
  // completion also makes the new count visible to it.
  void RecordLearned() { learned_of_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t learned_of() const { return learned_of_.load(std::memory_order_relaxed); }

 private:
  // The right to drive, which one thread has at a time. The background thread does not queue for this right, but leaves
  // a note.
  class ABSL_LOCKABLE DriverMutex {
   public:
    // The note: what the background thread does while another thread drives. It sleeps briefly; or, if it has found the
    // other thread in the same step twice, it sleeps until the doorbell rings.
    enum class Note { kNone, kSleepsBriefly, kSleeps };

    bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
    // If another thread drives, leaves a note and sets `note` to it.
    bool TryLockOrLeaveNote(Note* note) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
    void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
    // The note left since the last call. REQUIRES: this thread has the right to drive.
    Note ReadNote();
    // Gives the right back. Returns the note that has not been read.
    [[nodiscard]] Note Unlock() ABSL_UNLOCK_FUNCTION();

   private:
    static constexpr int kFree = -1;  // otherwise a Note
    // A single number, so that either the leaving thread finds the note or the arriving thread finds the right free.
    std::atomic<int> state_{kFree};
  };

  // Guesses whether the program waits for each tensor at once. Several submitting threads may make the guess wrong.
  class WaitHeuristic {
   public:
    explicit WaitHeuristic(const Clock* clock) : clock_(clock) {}

    void Submitted(absl::Time now);
    // A thread has begun to wait.
    void Waits();
    // The background thread checks whether the program has failed to wait in time.
    void Look();
    bool waits_at_once() const { return evidence_.load(std::memory_order_relaxed) >= kEnoughEvidence; }

   private:
    // How many immediate waits are enough, how many are remembered, and how many of them one wait that is not immediate
    // cancels.
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

  // Gives back the right to drive, and rings for the background thread if it has left a note.
  void StopAndRing() ABSL_UNLOCK_FUNCTION(driver_mutex_);
  // Until when the background thread sleeps after it has left this note.
  absl::Time EndOfSleep(DriverMutex::Note note) const;
  absl::Time SleepTimeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  // Drives as soon as no other thread does, if that happens soon.
  void DriveSoon(absl::FunctionRef<bool()> done);
  void DriveLocked(absl::FunctionRef<bool()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  // A blocking call drove from `began` to `ended`, in CheapTicks(). Guesses whether the program makes the next call at
  // once. The guess is yes if the program spent less time between the last two calls than in the first of them.
  void RecordCallLocked(uint64_t began, uint64_t ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  void OnSubmissionLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);
  // The thread stops driving; its last step returned `progress`.
  void StopDrivingLocked(Steps::Progress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(driver_mutex_);

  const Clock* const clock_;
  DriverMutex driver_mutex_;  // held by the progress thread
  Steps* steps_ ABSL_GUARDED_BY(driver_mutex_) = nullptr;
  bool over_ ABSL_GUARDED_BY(driver_mutex_) = false;
  // Until when the background thread sleeps. The infinite past: it is certain to come.
  absl::Time sleeps_until_ ABSL_GUARDED_BY(driver_mutex_) = absl::InfinitePast();
  bool must_ring_ ABSL_GUARDED_BY(driver_mutex_) = false;  // when the right to drive is given back
  bool driven_ ABSL_GUARDED_BY(driver_mutex_) = false;     // by another thread, since the background thread's last look
  // Of the last blocking call, in CheapTicks().
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
