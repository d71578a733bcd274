// A world in which threads, processes and time are simulated, so that a run of production code repeats itself.
#ifndef RONDA_TESTS_SIMULATION_VIRTUAL_THREADS_H_
#define RONDA_TESTS_SIMULATION_VIRTUAL_THREADS_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace ronda::simulation {

// A group of threads that live and die together, as those of a process of the operating system do.
using ProcessId = int;

// Real threads, of which one runs at a time. A thread runs until it comes to a scheduling point: a lock, a wait, a
// sleep, a yield, a look at the clock, or a message. There a random number decides whether another thread goes on.
// Time passes a little with each look at the clock; it jumps to the next deadline when all threads sleep. So the seed
// decides everything, and equal seeds run equally.
//
// Production code takes part without a change: virtual_calls.cc has the C library's functions for threads, locks,
// sleeps and clocks. Called by a virtual thread they end here; called by any other thread they do what they always do.
//
// A process of the operating system has one world, which it enters once and leaves by its own end.
//
// Only the virtual thread that runs calls it.
class VirtualWorld {
 public:
  // The only one.
  static VirtualWorld& Get();

  // Whether the calling thread is a virtual one.
  static bool IsInside();

  // Makes the calling thread the first virtual thread, of process 0. `tick` is the mean time between two looks at the
  // clock. `report` is called, before the operating system's process ends with kStuckExit, if no thread can ever run
  // again.
  struct Options {
    uint64_t seed = 0;
    absl::Duration tick = absl::Microseconds(2);
    std::function<void(const std::string& what)> report;
  };
  void Enter(Options options);

  // Time since Enter().
  absl::Duration now() const { return now_; }
  // A hash of all decisions so far.
  uint64_t trace() const { return trace_; }
  // 0 to below - 1.
  uint64_t Random(uint64_t below) { return below <= 1 ? 0 : random_() % below; }
  bool OneIn(uint64_t many) { return Random(many) == 0; }
  absl::Duration RandomDuration(absl::Duration most) {
    return absl::Nanoseconds(static_cast<int64_t>(Random(static_cast<uint64_t>(absl::ToInt64Nanoseconds(most)) + 1)));
  }

  // Processes. `main` runs in the first thread of a new one; its result is the exit code.
  ProcessId StartProcess(std::string name, std::function<int()> main);
  ProcessId current_process() const;
  // Ends the process of the calling thread.
  [[noreturn]] void Exit(int exit_code);
  // No thread of the process runs any more. Those that hold a lock go on until they hold none: some locks belong to the
  // whole world, such as the logger's.
  void Kill(ProcessId process);
  // The same until `until`.
  void Freeze(ProcessId process, absl::Duration until);
  bool IsAlive(ProcessId process) const { return processes_[static_cast<size_t>(process)].is_alive; }
  // REQUIRES: the process is not alive.
  int ExitCode(ProcessId process) const { return processes_[static_cast<size_t>(process)].exit_code; }
  static constexpr int kKilledExit = 137, kTerminatedExit = 134, kStuckExit = 3;

  // While it lives no allocation of the calling thread fails: for the simulation's own.
  class Shield {
   public:
    Shield() { ++shields_; }
    ~Shield() { --shields_; }
    Shield(const Shield&) = delete;
    Shield& operator=(const Shield&) = delete;
  };

  // Inside a Shield: they may fail again.
  class Exposure {
   public:
    Exposure() : shields_before_(std::exchange(shields_, 0)) {}
    ~Exposure() { shields_ = shields_before_; }
    Exposure(const Exposure&) = delete;
    Exposure& operator=(const Exposure&) = delete;

   private:
    const int shields_before_;
  };

  // Faults of one process: so many allocations, or new descriptors, fail after so many that succeed; and the next start
  // of a thread, too.
  struct Shortage {
    int after = 0;
    int times = 0;
  };
  void FailAllocation(ProcessId process, Shortage shortage) {
    processes_[static_cast<size_t>(process)].memory = shortage;
  }
  void FailDescriptor(ProcessId process, Shortage shortage) {
    processes_[static_cast<size_t>(process)].descriptors = shortage;
  }
  void FailThread(ProcessId process, int after) { processes_[static_cast<size_t>(process)].threads = after; }
  // Whether the calling thread's allocation, or descriptor, is one to fail.
  bool FailsAllocation() { return shields_ == 0 && Fails(&processes_[static_cast<size_t>(self_->process)].memory); }
  bool FailsDescriptor();
  uint64_t descriptors_failed() const { return descriptors_failed_; }
  // The calendar's time jumps.
  void JumpCalendar(absl::Duration by) { calendar_ += by; }
  absl::Duration calendar() const { return calendar_; }

  // The scheduling points.
  void Look();   // at the clock
  void Yield();  // another thread goes on
  void SleepUntil(absl::Duration time);

  // The C library's calls.
  int CreateThread(pthread_t* thread, void* (*start)(void*), void* argument);
  int JoinThread(pthread_t thread);
  pthread_t CurrentThread() const { return HandleOf(*self_); }
  int Lock(pthread_mutex_t* mutex);
  int TryLock(pthread_mutex_t* mutex);
  int Unlock(pthread_mutex_t* mutex);
  // ETIMEDOUT after `deadline`.
  int WaitFor(pthread_cond_t* condition, pthread_mutex_t* mutex, absl::Duration deadline);
  void Notify(pthread_cond_t* condition, size_t most);

 private:
  struct Thread {
    size_t number = 0;
    ProcessId process = 0;
    pthread_t real = {};
    enum class State { kReady, kBlocked, kOver } state = State::kReady;
    const void* blocked_on = nullptr;
    absl::Duration deadline = absl::InfiniteDuration();  // of a blocked one
    bool is_woken = false;                               // before the deadline
    int locks = 0;                                       // that it holds
    std::function<void()> body;
    std::atomic<int> turn{0};   // a futex: 1 when it is its turn
    Thread* to_reap = nullptr;  // has ended just now: to be joined before this one goes on
  };
  struct Process {
    std::string name;
    bool is_alive = true;
    int exit_code = 0;
    absl::Duration frozen_until = -absl::InfiniteDuration();
    Shortage memory;
    Shortage descriptors;
    int threads = -1;  // that still start; negative: all do
  };

  VirtualWorld() = default;

  static bool Fails(Shortage* shortage);

  // Not the real handle, which the system gives to another thread once this one has ended.
  static pthread_t HandleOf(const Thread& thread) { return reinterpret_cast<pthread_t>(&thread); }
  Thread& AddThread(ProcessId process, std::function<void()> body);
  static void* RunThread(void* thread);
  [[noreturn]] static void EndByTerminate();
  bool MayRun(const Thread& thread) const;
  Thread* Choose();
  void PassTime();
  void HandOver(Thread* next);
  static void AwaitTurn(Thread* thread);
  // Whether it was woken.
  bool Block(const void* on, absl::Duration deadline);
  void Wake(const void* on, size_t most);
  [[noreturn]] void ReportStuck();

  Options options_;
  std::mt19937_64 random_;
  absl::Duration now_ = absl::ZeroDuration();
  absl::Duration calendar_ = absl::ZeroDuration();
  uint64_t trace_ = 14695981039346656037u;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Process> processes_;
  uint64_t descriptors_failed_ = 0;
  static thread_local Thread* self_;
  static thread_local int shields_;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_VIRTUAL_THREADS_H_
