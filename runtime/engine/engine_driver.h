#ifndef RONDA_RUNTIME_ENGINE_ENGINE_DRIVER_H_
#define RONDA_RUNTIME_ENGINE_ENGINE_DRIVER_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace ronda {

// Whose turn it is to carry a rank's engine on: the coordinator thread's, or that of a trainer thread which would
// otherwise sleep until the coordinator thread has done the work for it.
//
// The engine is used by one thread at a time, the one that has the turn. The coordinator thread takes the turn whenever
// the rank's bell has rung or a deadline has come, does all there is to do, and gives the turn back to sleep. A thread
// that waits for a handle tries to take the turn. If it gets it, it does what there is to do until its handle is
// complete or nothing is left; if not, somebody else is at it.
//
// Why no wake-up is lost. What comes from other threads and ranks (a message, a shutdown, a failure) rings the bell,
// and only the coordinator thread takes note of rings: a ring while another thread has the turn makes it come and wait
// for the turn. What is left inside (a bucket that may begin, a deadline earlier than the one that the coordinator
// thread sleeps until) is looked at by every thread that gives the turn back, which then rings the bell. Who submits
// tries to take the turn right afterwards, to do the work (Drive) or only to see whether there is any (TakeNote), and
// rings if it does not get the turn.
//
// Thread-safe. Shared by a runtime, which disconnects it, and its handles, which may outlive the runtime.
class EngineDriver {
 public:
  // What is driven. All calls but Wake are made by the thread that has the turn.
  class Engine {
   public:
    virtual ~Engine() = default;

    // Does the next thing that there is to do.
    enum class Progress { kNone, kSome, kOver };
    virtual Progress Advance() = 0;

    // Takes note of submissions, the last of which was made at `now`, if they need nothing else. kOver or kNone.
    virtual Progress TakeNote(absl::Time now) = 0;

    // When Advance is to be called again though the bell does not ring; the infinite past if there is something to do.
    virtual absl::Time NextDeadline() = 0;

    // Rings the bell.
    virtual void Wake() = 0;
  };

  // `engine` is not owned. To be called once, before the coordinator thread begins.
  void Connect(Engine* engine);

  // Waits until no thread drives; afterwards none touches the engine any more.
  void Disconnect();

  // The coordinator thread: does all there is to do. When to come again at the latest; nullopt if the job is over.
  // REQUIRES: connected.
  std::optional<absl::Time> DriveUntilIdle();

  // A thread that will wait: drives until `done`, or nothing is left to do. kBusy: another thread has the turn.
  enum class Turn { kTaken, kBusy };
  Turn Drive(absl::FunctionRef<bool()> done);

  // Something was submitted just `now`, and nobody waits for it: the coordinator thread is woken if there is something
  // to do.
  Turn TakeNote(absl::Time now);

  // Waits for what makes `done` true: drives, then calls `block`, which returns when it is. Neither calls this object.
  void Await(absl::FunctionRef<bool()> done, absl::FunctionRef<void()> block);

  // How many threads are in Await.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // The program learns that something is complete, and how often it has: what it submits while the count stays the same
  // waits for nothing that it has submitted. What makes another thread know of a completion makes it see the count,
  // too.
  void NoteLearned() { learned_of_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t learned_of() const { return learned_of_.load(std::memory_order_relaxed); }

 private:
  void DriveLocked(absl::FunctionRef<bool()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // The turn is given back; the last that was done made this `progress`.
  void LeaveRestLocked(Engine::Progress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);

  Mutex turn_;
  Engine* engine_ ABSL_GUARDED_BY(turn_) = nullptr;
  bool over_ ABSL_GUARDED_BY(turn_) = false;
  // Until when the coordinator thread sleeps. Before it has slept it is bound to come: the infinite past.
  absl::Time sleeps_until_ ABSL_GUARDED_BY(turn_) = absl::InfinitePast();
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> learned_of_{0};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_ENGINE_DRIVER_H_
