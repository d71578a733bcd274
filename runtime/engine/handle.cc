#include "runtime/engine/handle.h"

#include <utility>

#include "runtime/base/logging.h"

namespace ronda {

bool Handle::done() const {
  MutexLock lock(&mu_);
  return done_;
}

absl::Status Handle::Wait() const {
  MutexLock lock(&mu_);
  while (!done_) completed_.Wait(&mu_);
  return status_;
}

const OperationResult& Handle::result() const {
  RONDA_CHECK(done());
  return result_;
}

void Handle::Complete(absl::Status status) {
  MutexLock lock(&mu_);
  RONDA_CHECK(!done_);
  status_ = std::move(status);
  done_ = true;
  completed_.NotifyAll();
}

void Handle::Complete(OperationResult result) {
  result_ = std::move(result);
  Complete(absl::OkStatus());
}

}  // namespace ronda
