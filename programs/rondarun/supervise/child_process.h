// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_CHILD_PROCESS_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_CHILD_PROCESS_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/options/launch_options.h"
#include "programs/rondarun/supervise/guard.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A process that the launcher has started (a rank, or a helper such as mpirun that starts ranks), and the pipes to it.
//
// The process leads its own process group, which also includes the processes that it starts. When the process ends, the
// rest of the group is killed. The process inherits only the descriptors 0, 1 and 2 and those in
// Options::inherited_fds.
//
// Thread-compatible. The destructor does not end the process: the owner must signal and reap it.
class ChildProcess {
 public:
  // kTerminal: the launcher's standard input. If this is a terminal, a process that reads from it is stopped until its
  // group is in the terminal's foreground (Terminal). kNoTerminal: the launcher's standard input, or no input if this
  // is a terminal.
  enum class Input { kTerminal, kNoTerminal, kNone, kPipe };

  // How the process ends if the launcher is killed.
  enum class AtLauncherDeath {
    kKill,       // at once, together with its group
    kTerminate,  // by SIGTERM; killed later, because it must first end other processes, perhaps on other hosts
  };

  struct Options {
    std::vector<std::string> command;           // looked up in PATH unless it contains a slash
    std::vector<std::string> environment;       // "NAME=value"
    std::string words_before = "rondarun ...";  // the words before the command, for remedies in errors
    Input input = Input::kNone;
    AtLauncherDeath at_launcher_death = AtLauncherDeath::kKill;
    std::vector<int> inherited_fds;  // the launcher's descriptors that the process gets too, with the same numbers
    std::vector<int> cpus;           // that it may use, by their numbers in the system; empty: the launcher's
  };

  // How the process ended.
  struct End {
    int exit_code = 0;  // 0 if it was killed by a signal
    int signal = 0;     // 0 if it exited
  };

  virtual ~ChildProcess() = default;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Returns the value of RONDA_LAUNCH in the environment of the process. The processes that it starts inherit this
  // variable (Guard).
  const std::string& mark() const { return mark_; }

  // Returns a descriptor that becomes readable when the process ends.
  int pidfd() const { return pidfd_.get(); }

  // Returns the descriptor from which the launcher reads the output of the process without blocking. Returns -1 after
  // CloseOutput.
  int output(Stream stream) const { return outputs_[static_cast<size_t>(stream)].get(); }
  void CloseOutput(Stream stream) { outputs_[static_cast<size_t>(stream)].Reset(); }

  // Returns the descriptor to which the launcher writes the input of the process without blocking. Returns -1 after
  // CloseInput, or if the input is not Input::kPipe.
  int input() const { return input_.get(); }
  void CloseInput() { input_.Reset(); }

  // SignalGroup sends `signo` to all processes in the group; SignalAlone only to the process itself. REQUIRES: the
  // process has not been reaped.
  virtual void SignalGroup(int signo) const = 0;
  virtual void SignalAlone(int signo) const = 0;

  // Returns the signal that has stopped the process since the last call, or SIGCONT if the process has continued.
  // Reports each change only once. Returns nullopt if nothing has changed.
  virtual std::optional<int> NextMotion() const = 0;

  // Kills the rest of the group, and reaps the process (waitid). REQUIRES: the process has ended and has not been
  // reaped.
  virtual End Collect() = 0;

 protected:
  // The launcher's ends of the pipes.
  struct Pipes {
    UniqueFd input;
    std::array<UniqueFd, kStreamCount> outputs;
  };
  ChildProcess(pid_t pid, UniqueFd pidfd, std::string mark, Pipes pipes);

  void ClosePidfd() { pidfd_.Reset(); }

 private:
  const pid_t pid_;
  UniqueFd pidfd_;
  const std::string mark_;
  UniqueFd input_;
  std::array<UniqueFd, kStreamCount> outputs_;
};

// Starts the processes of a job.
class ProcessStarter {
 public:
  virtual ~ProcessStarter() = default;

  // Starts the command. Returns when the command is running. Errors: NOT_FOUND or PERMISSION_DENIED, with the name of
  // the command; otherwise those of the operating system.
  virtual absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildProcess::Options& options) const = 0;
};

// Starts processes as children of this process.
class SystemProcesses final : public ProcessStarter {
 public:
  // The settings that apply to all processes. The objects pointed to must outlive this object and its processes.
  struct Context {
    rlimit file_limit = {};  // of open descriptors
    const SignalInbox* signals = nullptr;
    const Guard* guard = nullptr;
  };

  explicit SystemProcesses(const Context& context) : context_(context) {}

  absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildProcess::Options& options) const override;

 private:
  const Context context_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_CHILD_PROCESS_H_
