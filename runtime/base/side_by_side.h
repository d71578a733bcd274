#ifndef RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
#define RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace ronda {

// Calls that are made at the same time, by a thread each: for calls that may wait for each other. Where the system has
// no more threads to give, the rest come one after the other.
//
// Thread-compatible. It may go while calls are under way.
class SideBySide {
 public:
  // Takes the memory that Run needs: where there is none, no call has been made yet.
  explicit SideBySide(std::vector<std::function<void()>> calls);

  // Makes the calls, once, and waits until all have returned, and what they were made of is gone. If one has thrown an
  // exception, throws it then.
  //
  // false: they have not within `patience`. Those that are left come to their ends by themselves, if ever, and so must
  // own what they use.
  bool Run(absl::Duration patience = absl::InfiniteDuration());

 private:
  class State;

  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_SIDE_BY_SIDE_H_
