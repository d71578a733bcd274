// SPDX-License-Identifier: Apache-2.0

// Simulates what the operating system does for processes: starting them, descriptors, signals, and socket names.
#ifndef RONDA_TESTS_SIMULATION_VIRTUAL_PROCESSES_H_
#define RONDA_TESTS_SIMULATION_VIRTUAL_PROCESSES_H_

#include <sys/types.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/rondarun/supervise/child_process.h"
#include "runtime/base/unique_fd.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// Starts simulated processes, which are functions, as children of the calling process. They have real pipes. When a
// process ends, its descriptors are closed and its children are killed, as with PR_SET_PDEATHSIG.
//
// Each real process has one world, and one VirtualProcesses. Only the running virtual thread may call its functions.
class VirtualProcesses final : public ProcessStarter {
 public:
  // The descriptors of a started process: its pipes, and copies of the descriptors that it inherits.
  struct Descriptors {
    UniqueFd input;
    UniqueFd output;
    UniqueFd errors;
    std::vector<UniqueFd> inherited;
  };
  // Runs a process, and returns its exit code.
  using Program = std::function<int(const ChildProcess::Options& options, Descriptors descriptors)>;

  static VirtualProcesses& Get();

  // `on_end` will be called after each end of a process.
  void Begin(Program program, std::function<void(ProcessId process)> on_end);

  absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildProcess::Options& options) const override;

  // Makes a process the owner of the descriptor, which is closed when the process ends.
  void Give(int fd, ProcessId process);
  // Closes a descriptor of the calling process. A thread whose process has ended has no descriptors.
  int Close(int fd);

  // Acts like kill(). Returns false if no simulated process has the pid.
  bool Signal(pid_t pid, int signo);
  // Returns whether the process has received SIGTERM.
  bool IsAskedToEnd(ProcessId process) const { return asked_to_end_.contains(process); }
  // Notifies the parent that the process was stopped (SIGSTOP) or continues (SIGCONT).
  void TellMotion(ProcessId process, int signo);
  // Returns whether the calling process has received SIGCHLD since the last call.
  bool TakeChildSignal();

  // Abstract socket names. At most one living process owns a name. Gives the name to the calling process. Returns false
  // if a living process owns it.
  bool TakeName(const std::string& name);
  // ConnectToName connects a socket to the name, like connect(). PeerOf returns the pid of the socket's peer, like
  // SO_PEERCRED, or nullopt for a socket that ConnectToName has not connected.
  bool ConnectToName(int fd, const std::string& name);
  std::optional<pid_t> PeerOf(int fd) const;
  bool IsListener(int fd) const { return listeners_.contains(fd); }
  void SetListener(int fd) { listeners_.insert(fd); }

 private:
  class Child;

  struct Process {
    ProcessId parent = 0;
    int end_event = -1;  // readable once the process has ended; belongs to the parent
    std::deque<int> motions;
  };

  VirtualProcesses() = default;

  void OnEnd(ProcessId process);

  Program program_;
  std::function<void(ProcessId process)> on_end_;
  std::map<ProcessId, Process> processes_;  // the processes that were started here
  std::map<int, ProcessId> owners_;         // of descriptors
  std::set<ProcessId> asked_to_end_;
  std::set<ProcessId> child_signals_;  // processes that have received SIGCHLD
  std::map<std::string, ProcessId> names_;
  std::map<int, ProcessId> peers_;  // by the descriptor of a connected socket
  std::set<int> listeners_;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_VIRTUAL_PROCESSES_H_
