// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
#define RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace ronda {

// Makes calls at the same time, one thread per call: for calls that may wait for each other. If the system has no more
// threads to give, the remaining calls are made one after the other.
//
// Thread-compatible. May be destroyed while calls are under way.
class SideBySide {
 public:
  // Allocates the memory that Run needs. If there is too little memory, no call has been made yet.
  explicit SideBySide(std::vector<std::function<void()>> calls);

  // Makes the calls, once. Waits until all have returned and their function objects are destroyed. If a call has thrown
  // an exception, throws it then.
  //
  // Returns false if that takes longer than `timeout`. The remaining calls end by themselves, if ever, so they must
  // own what they use.
  bool Run(absl::Duration timeout = absl::InfiniteDuration());

 private:
  class State;

  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
