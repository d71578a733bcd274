#ifndef RONDA_RUNTIME_LAUNCH_POLL_SET_H_
#define RONDA_RUNTIME_LAUNCH_POLL_SET_H_

#include <poll.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace ronda {

// One wait for whichever of several descriptors is ready first, and what to do then. Built anew for every wait.
//
// Thread-compatible.
class PollSet {
 public:
  // Calls `on_ready` from Wait when `fd` has one of `events` (POLLIN, POLLOUT) or is at its end.
  void Add(int fd, short events, std::function<void()> on_ready) {
    requests_.push_back({.fd = fd, .events = events, .revents = 0});
    actions_.push_back(std::move(on_ready));
  }

  // Waits until a descriptor is ready, or for `timeout`, and runs the actions of all that are ready in the order of
  // Add.
  void Wait(absl::Duration timeout) {
    // Rounded up: waking early would only mean another wait. Negative means no end.
    const int milliseconds =
        timeout == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(absl::ToInt64Milliseconds(
                  absl::Ceil(std::clamp(timeout, absl::ZeroDuration(), absl::Hours(1)), absl::Milliseconds(1))));
    if (poll(requests_.data(), requests_.size(), milliseconds) <= 0) return;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i].revents != 0) actions_[i]();
    }
  }

 private:
  std::vector<pollfd> requests_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_POLL_SET_H_
