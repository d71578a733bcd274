// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
#define RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace ronda {

// Makes calls that may wait for each other. It makes them at the same time, one thread per call. If the system has no
// more threads, the remaining calls are made one after the other.
//
// Thread-compatible. May be destroyed while calls are under way.
class SideBySide {
 public:
  // Allocates the memory that Run needs. So if there is too little memory, the constructor throws before any call is
  // made.
  explicit SideBySide(std::vector<std::function<void()>> calls);

  // Makes the calls, once. Waits until all have returned and their function objects are destroyed. If a call has thrown
  // an exception, Run then throws this exception.
  //
  // Returns false if the calls take longer than `timeout`. The calls that have not returned go on, so they must own
  // what they use.
  bool Run(absl::Duration timeout = absl::InfiniteDuration());

 private:
  class State;

  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
