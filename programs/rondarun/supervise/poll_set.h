// SPDX-License-Identifier: Apache-2.0

// The events that the supervisor's loop waits for: descriptors, and signals that arrive through a descriptor.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_POLL_SET_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_POLL_SET_H_

#include <poll.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A set of descriptors to wait for, with an action for each. The supervisor's loop builds a new set for every wait.
//
// Thread-compatible.
class PollSet {
 public:
  // From now on, Wait calls `on_ready` if `fd` has one of `events` (POLLIN, POLLOUT), or has reached its end.
  void Add(int fd, int16_t events, std::function<void()> on_ready) {
    requests_.push_back({.fd = fd, .events = events, .revents = 0});
    actions_.push_back(std::move(on_ready));
  }

  // Waits until a descriptor is ready, for at most `timeout`. Then runs the actions of all ready descriptors, in the
  // order in which they were added. Errors: those of PollDescriptors.
  absl::Status Wait(absl::Duration timeout);

 private:
  std::vector<pollfd> requests_;
  std::vector<std::function<void()>> actions_;
};

// Delivers the signals that end a job (usually SIGINT, SIGTERM, SIGHUP) through a descriptor, so that they do not kill
// this process.
//
// Signals that the parent process has set to be ignored remain ignored, such as SIGHUP under nohup, or SIGINT if a
// script has started the process with "&". Changes the signal mask of the process permanently. Thread-compatible. The
// process must be single-threaded.
class SignalInbox {
 public:
  static absl::StatusOr<SignalInbox> Create(const std::vector<int>& signals);

  // Returns a descriptor that is readable when Next has a signal to return.
  int fd() const { return fd_.get(); }

  // Returns whether this inbox receives the signal.
  bool Includes(int signo) const { return sigismember(&signals_, signo) == 1; }

  // Returns the next signal that has arrived, if any. Never blocks.
  std::optional<int> Next();

  // Restores, in a child, the signal handling with which this process was started. Async-signal-safe: the child calls
  // RestoreInChild between fork and exec.
  void RestoreInChild() const;

 private:
  SignalInbox() = default;

  UniqueFd fd_;
  sigset_t signals_ = {};
  sigset_t original_mask_ = {};
  struct sigaction original_sigpipe_ = {};
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_POLL_SET_H_
