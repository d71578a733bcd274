#include "tests/testing/fake_cuda/fake_stream.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/time/clock.h"

namespace ronda::testing {
namespace {

std::atomic<uint64_t> streams_so_far{0};

}  // namespace

FakeStream::FakeStream(int device, uint64_t delay_seed)
    : device_(device), id_(++streams_so_far), random_(delay_seed), delay_seed_(delay_seed), thread_([this] {
        Run();
      }) {}

FakeStream::~FakeStream() {
  {
    const MutexLock lock(&mu_);
    is_closing_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void FakeStream::Enqueue(std::function<void()> task) {
  {
    const MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

bool FakeStream::IsIdle() const {
  const MutexLock lock(&mu_);
  return tasks_.empty();
}

void FakeStream::SetCapturing(int capturing) {
  const MutexLock lock(&mu_);
  capturing_ = capturing;
}

int FakeStream::capturing() const {
  const MutexLock lock(&mu_);
  return capturing_;
}

void FakeStream::Run() {
  while (true) {
    std::function<void()> task;
    {
      const MutexLock lock(&mu_);
      while (tasks_.empty() && !is_closing_) changed_.Wait(&mu_);
      if (tasks_.empty()) return;
      task = tasks_.front();
    }
    Pause();
    task();
    task = nullptr;
    const MutexLock lock(&mu_);
    tasks_.pop_front();
  }
}

// Of up to 0.2 ms, before every fourth task.
void FakeStream::Pause() {
  if (delay_seed_ == 0 || random_() % 4 != 0) return;
  absl::SleepFor(absl::Microseconds(random_() % 200));
}

uint64_t FakeEvent::Record() {
  const MutexLock lock(&mu_);
  return ++recorded_;
}

void FakeEvent::Pass(uint64_t recording) {
  {
    const MutexLock lock(&mu_);
    passed_ = std::max(passed_, recording);
    passed_at_ = absl::Now();
  }
  changed_.NotifyAll();
}

uint64_t FakeEvent::last_recording() const {
  const MutexLock lock(&mu_);
  return recorded_;
}

bool FakeEvent::IsPassed(uint64_t recording) const {
  const MutexLock lock(&mu_);
  return passed_ >= recording;
}

void FakeEvent::AwaitPassing(uint64_t recording) const {
  const MutexLock lock(&mu_);
  while (passed_ < recording) changed_.Wait(&mu_);
}

absl::Time FakeEvent::passed_at() const {
  const MutexLock lock(&mu_);
  return passed_at_;
}

}  // namespace ronda::testing
