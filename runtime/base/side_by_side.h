// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
#define RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace ronda {

// Runs several calls concurrently, each on its own thread, so they may wait for each other. If the system cannot create
// another thread, runs that call on the caller's thread.
//
// Thread-compatible. A SideBySide may be destroyed while its calls are running.
class SideBySide {
 public:
  // Allocates the memory for the thread list. So if there is not enough memory, the constructor throws, before any call
  // has started.
  explicit SideBySide(std::vector<std::function<void()>> calls);

  // Starts the calls, and waits until all of them have returned and their function objects are destroyed. If any call
  // threw an exception, rethrows the first one. REQUIRES: Run() has not been called before.
  //
  // Returns false if the calls take longer than `timeout`. The remaining calls then keep running, so they must own all
  // objects that they use.
  bool Run(absl::Duration timeout = absl::InfiniteDuration());

 private:
  class State;

  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
