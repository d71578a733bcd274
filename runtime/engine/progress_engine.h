#ifndef RONDA_RUNTIME_ENGINE_PROGRESS_ENGINE_H_
#define RONDA_RUNTIME_ENGINE_PROGRESS_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

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
// only the background thread takes note of it; if another thread drives at that time, the background thread waits for
// it. What is left inside (a bucket that may begin, a deadline before the one that the background thread sleeps until)
// is found by every thread that stops driving, and this thread then rings the bell. A thread that submits tries to
// drive right afterwards, to do the work (Drive) or only to see whether there is any (TakeNote), and rings if another
// thread drives.
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

  // `steps` is not owned. To be called once, before the background thread begins.
  void Connect(Steps* steps);

  // Waits until no thread drives. After that no thread makes a step.
  void Disconnect();

  // The background thread: does all there is to do. Returns when to come again at the latest; nullopt if the job is
  // over.
  // REQUIRES: connected.
  std::optional<absl::Time> DriveUntilIdle();

  // A thread that will wait: drives until `done`, or nothing has been left to do for a while. kBusy: another thread
  // drives.
  enum class Attempt { kDriven, kBusy };
  Attempt Drive(absl::FunctionRef<bool()> done);

  // A tensor was submitted just `now`, and no thread waits for it. The background thread is woken if there is something
  // to do.
  Attempt TakeNote(absl::Time now);

  // Waits for `done`: drives, then calls `block`, which returns when it is so. Neither calls this object.
  void Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block);

  // How many threads are in Await.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // Counts how often the program has learned that an operation is complete. Tensors that it submits while the count
  // stays the same wait for no operation that it has submitted. The event that makes another thread know of a
  // completion makes it see the count, too.
  void NoteLearned() { learned_of_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t learned_of() const { return learned_of_.load(std::memory_order_relaxed); }

 private:
  void DriveLocked(absl::FunctionRef<bool()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The thread stops driving; its last step made this `progress`.
  void StopDrivingLocked(Steps::Progress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;  // held by the progress thread
  Steps* steps_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  // Until when the background thread sleeps. The infinite past: it is bound to come.
  absl::Time sleeps_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> learned_of_{0};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_PROGRESS_ENGINE_H_
