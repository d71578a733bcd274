// The events that the loop of the supervisor waits for: descriptors, and signals as one of them.
#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_POLL_SET_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_POLL_SET_H_

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// One wait for several descriptors, with an action for each of them. Built anew for every wait.
//
// Thread-compatible.
class PollSet {
 public:
  // Calls `on_ready` from Wait when `fd` has one of `events` (POLLIN, POLLOUT) or is at its end.
  void Add(int fd, int16_t events, std::function<void()> on_ready) {
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

// Makes the signals that end a job (usually SIGINT, SIGTERM, SIGHUP) readable from a descriptor instead of deadly.
//
// Signals that the process was started to ignore stay ignored: SIGHUP under nohup, SIGINT behind a script's "&".
// Changes the signal mask of the process for good. Thread-compatible; for single-threaded processes.
class SignalInbox {
 public:
  static absl::StatusOr<SignalInbox> Create(const std::vector<int>& signals);

  // Readable when Next has something to return.
  int fd() const { return fd_.get(); }

  // Whether the signal is one of those that come here.
  bool Includes(int signo) const { return sigismember(&signals_, signo) == 1; }

  // The next signal that has arrived, if any. Never blocks.
  std::optional<int> Next();

  // Gives a child the signal handling that this process was started with. To be called between fork and exec:
  // async-signal-safe.
  void RestoreInChild() const;

 private:
  SignalInbox() = default;

  UniqueFd fd_;
  sigset_t signals_ = {};
  sigset_t original_mask_ = {};
  struct sigaction original_sigpipe_ = {};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_POLL_SET_H_
