#ifndef RONDA_RUNTIME_LAUNCH_RANK_PROCESS_H_
#define RONDA_RUNTIME_LAUNCH_RANK_PROCESS_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signal_inbox.h"
#include "runtime/launch/stream.h"
#include "runtime/launch/unique_fd.h"

namespace ronda {

// The process of one rank, and the pipes it prints to.
//
// It leads a process group of its own, which holds whatever it starts: signals go to the whole group, and what is left
// of the group when the rank ends is killed. It has no descriptors but 0, 1 and 2. A group of its own also means that
// it cannot read from a terminal: it gets an error (EIO) there.
//
// Thread-compatible. The destructor does not end the process: its owner sends signals and collects it.
class RankProcess {
 public:
  enum class Input { kInherited, kNone };

  struct Options {
    std::vector<std::string> command;      // looked up in PATH unless it contains a slash
    std::vector<std::string> environment;  // "NAME=value"
    Input input = Input::kNone;
    rlimit file_limit = {};  // of open descriptors
  };

  // How the process ended.
  struct End {
    int exit_code = 0;  // 0 if it was killed by a signal
    int signal = 0;     // 0 if it exited
  };

  // Starts the command and returns once it runs.
  // Errors: NOT_FOUND or PERMISSION_DENIED, naming the command; the system's for all else.
  static absl::StatusOr<RankProcess> Start(const Options& options, const SignalInbox& signals, const Guard& guard);

  pid_t pid() const { return pid_; }

  // Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }

  // What it prints, never blocking; -1 after CloseOutput.
  int output(Stream stream) const { return outputs_[static_cast<size_t>(stream)].get(); }
  void CloseOutput(Stream stream) { outputs_[static_cast<size_t>(stream)].Reset(); }

  // Sends `signo` to the process and everything in its group.
  // REQUIRES: not collected.
  void Signal(int signo) const;

  // Kills what is left of the group, and frees the process' entry in the system.
  // REQUIRES: the process has ended; not collected.
  End Collect(const Guard& guard);

 private:
  RankProcess() = default;

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::array<UniqueFd, kStreamCount> outputs_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_RANK_PROCESS_H_
