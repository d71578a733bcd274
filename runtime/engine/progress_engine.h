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

// Carries a rank's operations forward, one step at a time and on one thread at a time: the progress thread. That is the
// background thread, or a trainer thread that would otherwise sleep until the background thread has done its work.
//
// The background thread drives whenever the rank's bell has rung or a deadline has come. It does all there is to do and
// sleeps again. A thread that waits for a handle drives too, if no other thread does, until its handle is complete or
// nothing is left to do. It polls for a while for messages that give it something to do: to be woken takes longer than
// what it waits for usually does, and the background thread, if it were woken too, would compete with it.
//
// Why no wake-up is lost. Messages, a shutdown and failures come from other threads and ranks. They ring the bell, and
// only the background thread takes note of it. If another thread drives at that time, the background thread leaves word
// and sleeps again: the other thread either makes a whole step after that, in which it finds what the bell has rung
// for, or rings once more when it stops. What is left inside (a bucket that may begin, a deadline before the one that
// the background thread sleeps until) is found by every thread that stops driving, and this thread then rings the bell.
// A thread that submits tries to drive right afterwards, to do the work (Drive) or only to see whether there is any
// (TakeNote), and rings if another thread drives.
//
// Why the background thread keeps away. A program that waits for each tensor as soon as it has submitted it drives by
// itself. The background thread, if it were woken for each submission, or queued for its turn to drive, would only
// compete with that thread for its core. So once a program has waited at once a few times, its submissions ring no
// more. The background thread naps instead: it comes a moment later, in case that the program does not, until nothing
// has been done between two looks.
//
// Thread-safe. Shared by an engine, which disconnects it, and by its handles, which may outlive the engine.
class ProgressEngine {
 public:
  // The steps of which progress is made. All calls but Wake are made by the progress thread.
  class Steps {
   public:
    virtual ~Steps() = default;

    // Does the next thing that there is to do.
    enum class Progress { kNone, kSome, kOver };
    virtual Progress Advance() = 0;

    // Takes note of submissions, the last of which was made at `now`, if they need nothing else. kOver or kNone.
    virtual Progress TakeNote(absl::Time now) = 0;

    // When Advance is to be called again though the bell does not ring; the infinite past if there is something to do.
    virtual absl::Time NextDeadline() = 0;

    // Rings the bell.
    virtual void Wake() = 0;

    // A thread that waits is about to make steps: it may go on to do so while there is nothing to do, if that is true.
    // The bell is for it alone then. KeepPolling is called before each further step, until it is false; then
    // StopPolling, after which the background thread comes for what has rung since the last step began.
    virtual bool StartPolling() = 0;
    virtual bool KeepPolling() = 0;
    virtual void StopPolling() = 0;
  };

  explicit ProgressEngine(const Clock* clock) : clock_(clock), habit_(clock) {}

  // `steps` is not owned. To be called once, before the background thread begins.
  void Connect(Steps* steps);

  // Waits until no thread drives. After that no thread makes a step.
  void Disconnect();

  // The background thread: does all there is to do. Returns when to come again at the latest; nullopt if the job is
  // over.
  // REQUIRES: connected.
  std::optional<absl::Time> DriveUntilIdle();

  // Whether the next step is likely to be a trainer thread's.
  bool expects_trainer() const { return habit_.waits_at_once(); }

  // A thread that will wait: drives until `done`, or nothing has been left to do for a while. kBusy: another thread
  // drives.
  enum class Attempt { kDriven, kBusy };
  Attempt Drive(absl::FunctionRef<bool()> done);

  // A tensor was submitted just `now`, and no thread waits for it yet. The background thread is woken if there is
  // something to do, unless a thread is expected to wait for it at once.
  Attempt TakeNote(absl::Time now);

  // Waits for `done`: drives, or gives the thread that does a moment, then calls `block`, which returns when it is so.
  // Neither calls this object.
  void Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block);

  // How many threads are in Await.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // How long threads have been in Drive, or in Await where they had to wait, in CheapTicks(). Those that are in Await
  // at the same time count once.
  uint64_t exposed_ticks() const {
    return exposed_ticks_.load(std::memory_order_relaxed) + driven_ticks_.load(std::memory_order_relaxed);
  }

  // Counts how often the program has learned that an operation is complete. Tensors that it submits while the count
  // stays the same wait for no operation that it has submitted. The event that makes another thread know of a
  // completion makes it see the count, too.
  void NoteLearned() { learned_of_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t learned_of() const { return learned_of_.load(std::memory_order_relaxed); }

 private:
  // The right to drive, which one thread has at a time. The background thread does not queue for it: it leaves word.
  class ABSL_LOCKABLE Seat {
   public:
    // What the background thread does while another thread has the seat: it naps, or, once it has found the other
    // thread in the same step twice, sleeps until the bell rings.
    enum class Word { kNone, kNaps, kSleeps };

    bool TryTake() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
    // Leaves `word` if another thread has the seat.
    bool TakeOrLeave(Word* word) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
    void Take() ABSL_EXCLUSIVE_LOCK_FUNCTION();
    // The word that was left since the last call. REQUIRES: the thread has the seat.
    Word ReadWord();
    // The word that has not been read.
    [[nodiscard]] Word Leave() ABSL_UNLOCK_FUNCTION();

   private:
    static constexpr int kFree = -1;  // otherwise a Word
    // A single number, so that either the thread that leaves finds the word, or the one that comes finds the seat free.
    std::atomic<int> state_{kFree};
  };

  // Whether the program waits for each tensor at once. A guess: several threads of a program may spoil it.
  class Habit {
   public:
    explicit Habit(const Clock* clock) : clock_(clock) {}

    void Submitted(absl::Time now);
    // A thread has come to wait.
    void Waits();
    // The background thread looks whether the program has not come.
    void Look();
    bool waits_at_once() const { return evidence_.load(std::memory_order_relaxed) >= kEnoughEvidence; }

   private:
    // Waits at once, and how many of them one that was not makes up for.
    static constexpr int kEnoughEvidence = 8;
    static constexpr int kMostEvidence = 12;
    static constexpr int kCounterEvidence = 3;

    bool IsAtOnce() const;
    void Learn(bool at_once);

    const Clock* const clock_;
    std::atomic<int> evidence_{0};
    std::atomic<int> submitted_{0};     // since a thread has come to wait
    std::atomic<int64_t> since_ns_{0};  // the last of these
  };

  // Gives the seat back, and rings for the background thread if that has left word.
  void LeaveSeat() ABSL_UNLOCK_FUNCTION(seat_);
  // Until when the background thread sleeps that has left this word.
  absl::Time EndOfSleep(Seat::Word word) const;
  absl::Time SleepTimeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(seat_);
  // Drives as soon as no other thread does, if that is soon.
  void DriveSoon(absl::FunctionRef<bool()> done);
  void DriveLocked(absl::FunctionRef<bool()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(seat_);
  void TakeNoteLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(seat_);
  // The thread stops driving; its last step made this `progress`.
  void StopDrivingLocked(Steps::Progress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(seat_);

  const Clock* const clock_;
  Seat seat_;  // the progress thread's
  Steps* steps_ ABSL_GUARDED_BY(seat_) = nullptr;
  bool over_ ABSL_GUARDED_BY(seat_) = false;
  // Until when the background thread sleeps. The infinite past: it is bound to come.
  absl::Time sleeps_until_ ABSL_GUARDED_BY(seat_) = absl::InfinitePast();
  bool must_ring_ ABSL_GUARDED_BY(seat_) = false;  // when the seat is left
  bool driven_ ABSL_GUARDED_BY(seat_) = false;     // by another thread, since the background thread has looked
  Habit habit_;
  std::atomic<int> ringing_{0};  // threads that have left the seat, or are about to, and ring before they go
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> wait_began_{0};     // CheapTicks(), of the first of those that wait
  std::atomic<uint64_t> exposed_ticks_{0};  // in Await
  std::atomic<uint64_t> driven_ticks_{0};   // in Drive outside of that; the thread in the seat writes it
  std::atomic<uint64_t> learned_of_{0};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_PROGRESS_ENGINE_H_
