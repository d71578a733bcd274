// SPDX-License-Identifier: Apache-2.0

// The events for which the supervisor's loop waits: descriptors, and signals through a descriptor.
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

// A set of descriptors to wait for, with an action for each. The supervisor's loop makes a new set for every wait.
//
// Thread-compatible.
class PollSet {
 public:
  // From now on, Wait calls `on_ready` when `fd` has one of `events` (POLLIN, POLLOUT), or has reached its end.
  void Add(int fd, int16_t events, std::function<void()> on_ready) {
    requests_.push_back({.fd = fd, .events = events, .revents = 0});
    actions_.push_back(std::move(on_ready));
  }

  // Waits until a descriptor is ready, but at most for `timeout`. After the wait, runs the actions of all ready
  // descriptors, in the order of the calls of Add. Errors: those of PollDescriptors.
  absl::Status Wait(absl::Duration timeout);

 private:
  std::vector<pollfd> requests_;
  std::vector<std::function<void()>> actions_;
};

// Makes a descriptor deliver the signals that end a job (usually SIGINT, SIGTERM, SIGHUP). These signals then do not
// kill this process.
//
// If the parent process has told the kernel to ignore a signal, the signal stays ignored. Examples are SIGHUP under
// nohup, and SIGINT when a script has started the process with "&". Changes the signal mask of the process for good.
// Thread-compatible. The process must be single-threaded.
class SignalInbox {
 public:
  static absl::StatusOr<SignalInbox> Create(const std::vector<int>& signals);

  // Returns a descriptor that is readable when Next has a signal to return.
  int fd() const { return fd_.get(); }

  // Returns whether this inbox receives the signal.
  bool Includes(int signo) const { return sigismember(&signals_, signo) == 1; }

  // Returns the next signal that has arrived, if any. Never blocks.
  std::optional<int> Next();

  // Restores in a child the signal handling with which this process was started. The child calls RestoreInChild between
  // fork and exec, so the function is async-signal-safe.
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
