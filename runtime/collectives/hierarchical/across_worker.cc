#include "runtime/collectives/hierarchical/across_worker.h"

#include <exception>
#include <new>
#include <utility>

namespace ronda {

AcrossWorker::AcrossWorker(Work work) : work_(std::move(work)), thread_([this] { Run(); }) {}

AcrossWorker::~AcrossWorker() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void AcrossWorker::Submit(size_t slot) {
  MutexLock lock(&mu_);
  slots_[submitted_++ % kDepth] = slot;
  changed_.NotifyAll();
}

absl::Status AcrossWorker::Await() {
  MutexLock lock(&mu_);
  while (done_ == awaited_) changed_.Wait(&mu_);
  return std::move(results_[awaited_++ % kDepth]);
}

absl::Status AcrossWorker::Carry(size_t slot) const {
  try {
    return work_(slot);
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  } catch (const std::exception&) {
    return exception_;
  }
}

void AcrossWorker::Run() {
  for (;;) {
    size_t slot = 0;
    {
      MutexLock lock(&mu_);
      while (!stopping_ && submitted_ == done_) changed_.Wait(&mu_);
      if (stopping_) return;
      slot = slots_[done_ % kDepth];
    }
    absl::Status result = Carry(slot);
    MutexLock lock(&mu_);
    results_[done_++ % kDepth] = std::move(result);
    changed_.NotifyAll();
  }
}

}  // namespace ronda
