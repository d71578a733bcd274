// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/virtual_threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/real_calls.h"

namespace ronda::simulation {
namespace {

// On average, another thread runs after this many reads of the clock, or this many locks.
constexpr uint64_t kLooksAThread = 12;
constexpr uint64_t kLocksAThread = 24;
// On average, one in this many waits ends without a notification, as POSIX allows.
constexpr uint64_t kWaitsASpuriousEnd = 200;

void Mix(uint64_t value, uint64_t* hash) { *hash = (*hash ^ value) * 1099511628211u; }

}  // namespace

thread_local VirtualWorld::Thread* VirtualWorld::self_ = nullptr;
thread_local int VirtualWorld::shields_ = 0;

VirtualWorld& VirtualWorld::Get() {
  static VirtualWorld* const world = new VirtualWorld;
  return *world;
}

bool VirtualWorld::IsInside() { return self_ != nullptr; }

void VirtualWorld::Enter(Options options) {
  options_ = std::move(options);
  random_.seed(options_.seed);
  processes_.push_back({.name = "launcher"});
  std::set_terminate(EndByTerminate);
  Thread& first = AddThread(0, nullptr);

  self_ = &first;
}

ProcessId VirtualWorld::current_process() const { return self_->process; }

VirtualWorld::Thread& VirtualWorld::AddThread(ProcessId process, std::function<void()> body) {
  const Shield shield;
  auto thread = std::make_unique<Thread>();
  thread->number = threads_.size();
  thread->process = process;
  thread->body = std::move(body);
  threads_.push_back(std::move(thread));
  return *threads_.back();
}

ProcessId VirtualWorld::StartProcess(std::string name, std::function<int()> main) {
  const auto process = static_cast<ProcessId>(processes_.size());
  processes_.push_back({.name = std::move(name)});
  Thread& thread = AddThread(process, [this, main = std::move(main)] { Exit(main()); });
  RealCalls::Get().create_thread(&thread.real, nullptr, RunThread, &thread);
  return process;
}

void VirtualWorld::Exit(int exit_code) {
  Process& process = processes_[static_cast<size_t>(self_->process)];
  if (process.is_alive) {
    process.is_alive = false;
    process.exit_code = exit_code;
    on_end_(self_->process);
  }
  self_->state = Thread::State::kBlocked;
  self_->locks = 0;
  for (;;) HandOver(Choose());
}

void VirtualWorld::EndByTerminate() {
  if (!IsInside()) abort();
  Get().Exit(kTerminatedExit);
}

void VirtualWorld::Kill(ProcessId process) {
  Process& killed = processes_[static_cast<size_t>(process)];
  if (!killed.is_alive) return;
  killed.is_alive = false;
  killed.exit_code = kKilledExit;
  on_end_(process);
}

void VirtualWorld::Freeze(ProcessId process, absl::Duration until) {
  absl::Duration& frozen_until = processes_[static_cast<size_t>(process)].frozen_until;
  frozen_until = std::max(frozen_until, until);
}

bool VirtualWorld::Fails(Shortage* shortage) {
  if (shortage->times == 0) return false;
  if (shortage->after > 0) {
    --shortage->after;
    return false;
  }
  --shortage->times;
  return true;
}

bool VirtualWorld::FailsDescriptor() {
  if (!Fails(&processes_[static_cast<size_t>(self_->process)].descriptors)) return false;
  ++descriptors_failed_;
  return true;
}

void VirtualWorld::Look() {
  now_ += RandomDuration(2 * options_.tick);
  if (OneIn(kLooksAThread)) HandOver(Choose());
}

void VirtualWorld::Yield() {
  now_ += RandomDuration(2 * options_.tick);
  HandOver(Choose());
}

void VirtualWorld::SleepUntil(absl::Duration time) { Block(nullptr, time); }

bool VirtualWorld::MayRun(const Thread& thread) const {
  const Process& process = processes_[static_cast<size_t>(thread.process)];
  return thread.locks > 0 || (process.is_alive && process.frozen_until <= now_);
}

VirtualWorld::Thread* VirtualWorld::Choose() {
  const Shield shield;
  for (;;) {
    std::vector<Thread*> able;
    for (const std::unique_ptr<Thread>& thread : threads_) {
      const bool is_due = thread->state == Thread::State::kReady ||
                          (thread->state == Thread::State::kBlocked && thread->deadline <= now_);
      if (is_due && MayRun(*thread)) able.push_back(thread.get());
    }
    if (able.empty()) {
      PassTime();
      continue;
    }
    Thread* const chosen = able[Random(able.size())];
    Mix(chosen->number, &trace_);
    Mix(static_cast<uint64_t>(absl::ToInt64Nanoseconds(now_)), &trace_);
    return chosen;
  }
}

// Advances the world's time to the next moment at which a thread may run.
void VirtualWorld::PassTime() {
  absl::Duration next = absl::InfiniteDuration();
  for (const std::unique_ptr<Thread>& thread : threads_) {
    const Process& process = processes_[static_cast<size_t>(thread->process)];
    if (thread->state == Thread::State::kOver || (!process.is_alive && thread->locks == 0)) continue;
    absl::Duration due = thread->state == Thread::State::kReady ? now_ : thread->deadline;
    if (thread->locks == 0) due = std::max(due, process.frozen_until);
    next = std::min(next, due);
  }
  if (next == absl::InfiniteDuration()) ReportStuck();
  now_ = std::max(now_, next);
}

void VirtualWorld::ReportStuck() {
  std::string what = "every thread waits for ever:";
  for (const std::unique_ptr<Thread>& thread : threads_) {
    const Process& process = processes_[static_cast<size_t>(thread->process)];
    if (thread->state == Thread::State::kOver || !process.is_alive) continue;
    absl::StrAppend(&what, " thread ", thread->number, " of ", process.name, " (", thread->locks, " locks)");
  }
  options_.report(what);
  _exit(kStuckExit);
}

void VirtualWorld::HandOver(Thread* next) {
  Thread* const self = self_;
  if (next == self) {
    self->state = Thread::State::kReady;
    return;
  }
  next->state = Thread::State::kReady;
  next->turn.store(1, std::memory_order_release);
  syscall(SYS_futex, &next->turn, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  AwaitTurn(self);
}

void VirtualWorld::AwaitTurn(Thread* thread) {
  while (thread->turn.exchange(0, std::memory_order_acquire) == 0) {
    syscall(SYS_futex, &thread->turn, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
  if (Thread* const ended = std::exchange(thread->to_reap, nullptr); ended != nullptr) {
    RealCalls::Get().join_thread(ended->real, nullptr);
  }
}

bool VirtualWorld::Block(const void* on, absl::Duration deadline) {
  self_->state = Thread::State::kBlocked;
  self_->blocked_on = on;
  self_->deadline = deadline;
  self_->is_woken = false;
  HandOver(Choose());
  self_->blocked_on = nullptr;
  return self_->is_woken;
}

void VirtualWorld::Wake(const void* on, size_t most) {
  const Shield shield;
  std::vector<Thread*> waiting;
  for (const std::unique_ptr<Thread>& thread : threads_) {
    if (thread->state == Thread::State::kBlocked && thread->blocked_on == on) waiting.push_back(thread.get());
  }
  for (; most > 0 && !waiting.empty(); --most) {
    const size_t chosen = Random(waiting.size());
    waiting[chosen]->state = Thread::State::kReady;
    waiting[chosen]->is_woken = true;
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
}

int VirtualWorld::CreateThread(pthread_t* thread, void* (*start)(void*), void* argument) {
  int& left = processes_[static_cast<size_t>(self_->process)].threads;
  if (left >= 0 && left-- == 0) return EAGAIN;
  const Shield shield;
  Thread& created = AddThread(self_->process, [start, argument] { start(argument); });
  if (const int error = RealCalls::Get().create_thread(&created.real, nullptr, RunThread, &created); error != 0) {
    abort();  // the machine's limits are not part of the simulation
  }
  *thread = HandleOf(created);
  Look();
  return 0;
}

void* VirtualWorld::RunThread(void* argument) {
  auto* const thread = static_cast<Thread*>(argument);
  self_ = thread;
  AwaitTurn(thread);
  thread->body();
  thread->body = nullptr;
  VirtualWorld& world = Get();
  thread->state = Thread::State::kOver;
  world.Wake(thread, world.threads_.size());
  Thread* const next = world.Choose();
  self_ = nullptr;
  // The next thread first joins this one. So the destructors of this thread's thread-local variables have run before
  // the next thread continues.
  next->to_reap = thread;
  next->state = Thread::State::kReady;
  next->turn.store(1, std::memory_order_release);
  syscall(SYS_futex, &next->turn, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  return nullptr;
}

int VirtualWorld::JoinThread(pthread_t thread) {
  const auto* const joined = reinterpret_cast<const Thread*>(thread);
  while (joined->state != Thread::State::kOver) Block(joined, absl::InfiniteDuration());
  return 0;
}

int VirtualWorld::Lock(pthread_mutex_t* mutex) {
  if (OneIn(kLocksAThread)) HandOver(Choose());
  while (RealCalls::Get().try_lock(mutex) != 0) Block(mutex, absl::InfiniteDuration());
  ++self_->locks;
  return 0;
}

int VirtualWorld::TryLock(pthread_mutex_t* mutex) {
  const int error = RealCalls::Get().try_lock(mutex);
  if (error == 0) ++self_->locks;
  return error;
}

int VirtualWorld::Unlock(pthread_mutex_t* mutex) {
  const int error = RealCalls::Get().unlock(mutex);
  if (error == 0) --self_->locks;
  Wake(mutex, threads_.size());
  return error;
}

int VirtualWorld::WaitFor(pthread_cond_t* condition, pthread_mutex_t* mutex, absl::Duration deadline) {
  Unlock(mutex);
  bool is_woken = true;
  if (OneIn(kWaitsASpuriousEnd)) {
    Yield();
  } else {
    is_woken = Block(condition, deadline);
  }
  Lock(mutex);
  return is_woken ? 0 : ETIMEDOUT;
}

void VirtualWorld::Notify(pthread_cond_t* condition, size_t most) { Wake(condition, most); }

}  // namespace ronda::simulation
