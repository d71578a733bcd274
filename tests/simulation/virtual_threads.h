// SPDX-License-Identifier: Apache-2.0

// Simulates threads, processes and time, so that a run of production code can be repeated exactly.
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

// A simulated process: a group of threads that live and die together.
using ProcessId = int;

// A virtual world. Its threads are real, but only one runs at a time, until it reaches a scheduling point: a lock,
// wait, sleep, yield, message, or read of the clock. There, a random number decides whether another thread runs next.
// Each read of the clock advances time a little. When all threads sleep, time jumps to the next deadline. So a run
// depends only on the seed.
//
// Production code runs unchanged in a world, because virtual_calls.cc replaces the C library's functions for threads,
// locks, sleeps and clocks. Calls by virtual threads go to this class. For other threads, the functions work as usual.
//
// A real process has one world, which it enters once and never leaves.
//
// Only the running virtual thread may call a VirtualWorld's functions.
class VirtualWorld {
 public:
  // Returns the only world of this process.
  static VirtualWorld& Get();

  // Returns whether the calling thread is a virtual thread.
  static bool IsInside();

  // Makes the calling thread the first virtual thread, in process 0. `tick` is the mean time between two reads of the
  // clock. If no thread can ever run again, calls `report`, and ends the real process with kStuckExit.
  struct Options {
    uint64_t seed = 0;
    absl::Duration tick = absl::Microseconds(2);
    std::function<void(const std::string& what)> report;
  };
  void Enter(Options options);

  // Time since Enter().
  absl::Duration now() const { return now_; }
  // Returns a hash of all decisions so far.
  uint64_t trace() const { return trace_; }
  // Returns a random number from 0 to `below` - 1.
  uint64_t Random(uint64_t below) { return below <= 1 ? 0 : random_() % below; }
  bool OneIn(uint64_t many) { return Random(many) == 0; }
  absl::Duration RandomDuration(absl::Duration most) {
    return absl::Nanoseconds(static_cast<int64_t>(Random(static_cast<uint64_t>(absl::ToInt64Nanoseconds(most)) + 1)));
  }

  // Processes. `main` runs in the first thread of a new process; its result is the exit code.
  ProcessId StartProcess(std::string name, std::function<int()> main);
  ProcessId current_process() const;
  // `on_end` is called after a process has ended, in the thread that has ended it.
  void SetOnEnd(std::function<void(ProcessId process)> on_end) { on_end_ = std::move(on_end); }
  // Ends the process of the calling thread.
  [[noreturn]] void Exit(int exit_code);
  // Stops all threads of the process for ever. A thread continues until it holds no lock, because some locks, such as
  // the logger's, are shared by the whole world.
  void Kill(ProcessId process);
  // Stops all threads of the process until `until`, in the same way as Kill().
  void Freeze(ProcessId process, absl::Duration until);
  bool IsAlive(ProcessId process) const { return processes_[static_cast<size_t>(process)].is_alive; }
  // REQUIRES: the process is not alive.
  int ExitCode(ProcessId process) const { return processes_[static_cast<size_t>(process)].exit_code; }
  static constexpr int kKilledExit = 137, kTerminatedExit = 134, kStuckExit = 3;

  // While a Shield exists, the calling thread's allocations do not fail. The simulation shields its own allocations.
  class Shield {
   public:
    Shield() { ++shields_; }
    ~Shield() { --shields_; }
    Shield(const Shield&) = delete;
    Shield& operator=(const Shield&) = delete;
  };

  // While an Exposure exists inside a Shield, allocations may fail again.
  class Exposure {
   public:
    Exposure() : shields_before_(std::exchange(shields_, 0)) {}
    ~Exposure() { shields_ = shields_before_; }
    Exposure(const Exposure&) = delete;
    Exposure& operator=(const Exposure&) = delete;

   private:
    const int shields_before_;
  };

  // A shortage in one process: after `after` successful allocations or new descriptors, the next `times` fail.
  // FailThread makes one thread start fail after `after` successful ones.
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
  // Return whether the calling thread's current allocation, or new descriptor, must fail.
  bool FailsAllocation() { return shields_ == 0 && Fails(&processes_[static_cast<size_t>(self_->process)].memory); }
  bool FailsDescriptor();
  uint64_t descriptors_failed() const { return descriptors_failed_; }
  // Makes the calendar clock jump.
  void JumpCalendar(absl::Duration by) { calendar_ += by; }
  absl::Duration calendar() const { return calendar_; }

  // The following functions are scheduling points.
  void Look();   // a read of the clock
  void Yield();  // another thread runs
  void SleepUntil(absl::Duration time);

  // The functions below act like functions of the C library.
  int CreateThread(pthread_t* thread, void* (*start)(void*), void* argument);
  int JoinThread(pthread_t thread);
  pthread_t CurrentThread() const { return HandleOf(*self_); }
  int Lock(pthread_mutex_t* mutex);
  int TryLock(pthread_mutex_t* mutex);
  int Unlock(pthread_mutex_t* mutex);
  // Returns ETIMEDOUT after `deadline`.
  int WaitFor(pthread_cond_t* condition, pthread_mutex_t* mutex, absl::Duration deadline);
  void Notify(pthread_cond_t* condition, size_t most);

 private:
  struct Thread {
    size_t number = 0;
    ProcessId process = 0;
    pthread_t real = {};
    enum class State { kReady, kBlocked, kOver } state = State::kReady;
    const void* blocked_on = nullptr;
    absl::Duration deadline = absl::InfiniteDuration();  // if the thread is blocked
    bool is_woken = false;                               // whether it was woken before the deadline
    int locks = 0;                                       // the number of locks that it holds
    std::function<void()> body;
    std::atomic<int> turn{0};   // a futex: 1 when the thread may run
    Thread* to_reap = nullptr;  // has just ended; this thread joins it before continuing
  };
  struct Process {
    std::string name;
    bool is_alive = true;
    int exit_code = 0;
    absl::Duration frozen_until = -absl::InfiniteDuration();
    Shortage memory;
    Shortage descriptors;
    int threads = -1;  // thread starts that still succeed; negative: all
  };

  VirtualWorld() = default;

  static bool Fails(Shortage* shortage);

  // Returns an address instead of the real handle, which the system reuses after a thread has ended.
  static pthread_t HandleOf(const Thread& thread) { return reinterpret_cast<pthread_t>(&thread); }
  Thread& AddThread(ProcessId process, std::function<void()> body);
  static void* RunThread(void* thread);
  [[noreturn]] static void EndByTerminate();
  bool MayRun(const Thread& thread) const;
  Thread* Choose();
  void PassTime();
  void HandOver(Thread* next);
  static void AwaitTurn(Thread* thread);
  // Returns whether the thread was woken before the deadline.
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
  std::function<void(ProcessId process)> on_end_ = [](ProcessId) {};
  uint64_t descriptors_failed_ = 0;
  static thread_local Thread* self_;
  static thread_local int shields_;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_VIRTUAL_THREADS_H_
