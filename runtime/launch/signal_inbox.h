#ifndef RONDA_RUNTIME_LAUNCH_SIGNAL_INBOX_H_
#define RONDA_RUNTIME_LAUNCH_SIGNAL_INBOX_H_

#include <csignal>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// Makes the signals that end a job (usually SIGINT, SIGTERM, SIGHUP) readable from a descriptor instead of deadly.
//
// Signals that the process was started to ignore stay ignored: SIGHUP under nohup, SIGINT behind a script's "&".
// Changes the signal mask of the process for good. Thread-compatible; for single-threaded processes.
class SignalInbox {
 public:
  static absl::StatusOr<SignalInbox> Create(const std::vector<int>& signals);

  // Readable when Next has something to return.
  int fd() const { return fd_.get(); }

  // The next signal that has arrived, if any. Never blocks.
  std::optional<int> Next();

  // Gives a child the signal handling that this process was started with. To be called between fork and exec:
  // async-signal-safe.
  void RestoreInChild() const;

 private:
  SignalInbox() = default;

  UniqueFd fd_;
  sigset_t original_mask_ = {};
  struct sigaction original_sigpipe_ = {};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SIGNAL_INBOX_H_
