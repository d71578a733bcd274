#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_CHILD_PROCESS_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_CHILD_PROCESS_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/launch/options/launch_options.h"
#include "runtime/launch/supervise/guard.h"
#include "runtime/launch/supervise/poll_set.h"

namespace ronda {

// A process that the launcher has started (a rank, or a helper such as mpirun that starts ranks), and the pipes to it.
//
// It leads a process group of its own, which holds all that it starts; the rest of the group is killed when the
// process ends. It has no descriptors but 0, 1 and 2, and those that its options name. A group of its own also means
// that it cannot read from a terminal: it gets an error (EIO) there, or with Input::kTerminal it is stopped until the
// terminal is lent to its group (Terminal).
//
// Thread-compatible. The destructor does not end the process: its owner sends signals and collects it.
class ChildProcess {
 public:
  // kTerminal: as kInherited, for the one process to which a terminal may be lent.
  enum class Input { kInherited, kTerminal, kNone, kPipe };

  // How it ends if the launcher is killed.
  enum class AtLauncherDeath {
    kKill,       // at once, and its group with it
    kTerminate,  // it gets SIGTERM and some time, as it has processes of its own to end, maybe on other hosts
  };

  struct Options {
    std::vector<std::string> command;           // looked up in PATH unless it contains a slash
    std::vector<std::string> environment;       // "NAME=value"
    std::string words_before = "rondarun ...";  // the command, on the user's command line; for remedies
    Input input = Input::kNone;
    AtLauncherDeath at_launcher_death = AtLauncherDeath::kKill;
    std::vector<int> inherited_fds;  // of the launcher's, which it has too, under the same numbers
    std::vector<int> cpus;           // that it may run on, by their numbers in the system; empty: the launcher's
  };

  // How the process ended.
  struct End {
    int exit_code = 0;  // 0 if it was killed by a signal
    int signal = 0;     // 0 if it exited
  };

  // The surroundings that all processes are started with. The pointees must outlive the start.
  struct Context {
    rlimit file_limit = {};  // of open descriptors
    const SignalInbox* signals = nullptr;
    const Guard* guard = nullptr;
  };

  // Starts the command and returns once it runs.
  // Errors: NOT_FOUND or PERMISSION_DENIED, naming the command; the system's for all else.
  static absl::StatusOr<ChildProcess> Start(const Options& options, const Context& context);

  pid_t pid() const { return pid_; }

  // The value of RONDA_LAUNCH for this process and those that it starts (Guard).
  const std::string& mark() const { return mark_; }

  // Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }

  // Its output, never blocking; -1 after CloseOutput.
  int output(Stream stream) const { return outputs_[static_cast<size_t>(stream)].get(); }
  void CloseOutput(Stream stream) { outputs_[static_cast<size_t>(stream)].Reset(); }

  // Writes to its standard input, never blocking; -1 unless that is Input::kPipe, and after CloseInput.
  int input() const { return input_.get(); }
  void CloseInput() { input_.Reset(); }

  // Sends `signo` to the process and everything in its group, or to the process alone.
  // REQUIRES: not collected.
  void SignalGroup(int signo) const;
  void SignalAlone(int signo) const;

  // Kills the rest of the group, and frees the process' entry in the system.
  // REQUIRES: the process has ended; not collected.
  End Collect(const Guard& guard);

 private:
  ChildProcess() = default;

  // Returns once the command runs; else nothing is left of the process.
  absl::Status AwaitStart(int failure_pipe, const Options& options, const Guard& guard);

  std::string mark_;
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd input_;
  std::array<UniqueFd, kStreamCount> outputs_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_CHILD_PROCESS_H_
