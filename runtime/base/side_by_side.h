// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
#define RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace ronda {

// Makes several calls at the same time, one thread per call. So the calls may wait for each other. If the system has no
// more threads, makes the remaining calls one after the other.
//
// Thread-compatible. A SideBySide may be destroyed while its calls are under way.
class SideBySide {
 public:
  // The constructor allocates the memory that Run needs. So if there is too little memory, the constructor throws
  // before it makes any call.
  explicit SideBySide(std::vector<std::function<void()>> calls);

  // Run may be called only once. Run makes the calls, and waits until all of them have returned and their function
  // objects are destroyed. If one of the calls has thrown an exception, Run throws this exception at the end.
  //
  // Returns false if the calls take longer than `timeout`. Calls that have not returned after `timeout` continue, so
  // they must own all objects that they use.
  bool Run(absl::Duration timeout = absl::InfiniteDuration());

 private:
  class State;

  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
