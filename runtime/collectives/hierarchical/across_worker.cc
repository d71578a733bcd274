#include "runtime/collectives/hierarchical/across_worker.h"

#include <utility>

namespace ronda {

AcrossWorker::AcrossWorker(Communicator& across) : across_(across), thread_([this] { Run(); }) {}

AcrossWorker::~AcrossWorker() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void AcrossWorker::Submit(const ReduceCall& call) {
  MutexLock lock(&mu_);
  calls_[submitted_++ % kDepth] = &call;
  changed_.NotifyAll();
}

absl::Status AcrossWorker::Await() {
  MutexLock lock(&mu_);
  while (done_ == awaited_) changed_.Wait(&mu_);
  return std::move(results_[awaited_++ % kDepth]);
}

void AcrossWorker::Run() {
  for (;;) {
    const ReduceCall* call = nullptr;
    {
      MutexLock lock(&mu_);
      while (!stopping_ && submitted_ == done_) changed_.Wait(&mu_);
      if (stopping_) return;
      call = calls_[done_ % kDepth];
    }
    absl::Status result = across_.Reduce(*call);
    MutexLock lock(&mu_);
    results_[done_++ % kDepth] = std::move(result);
    changed_.NotifyAll();
  }
}

}  // namespace ronda
