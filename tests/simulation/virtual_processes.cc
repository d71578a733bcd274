// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/virtual_processes.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "tests/simulation/real_calls.h"

namespace ronda::simulation {
namespace {

// Simulated pids begin here, above all real pids.
constexpr pid_t kFirstPid = 10'000'000;

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) abort();  // the machine's limits are not part of the simulation
  return {.read_end = UniqueFd(ends[0]), .write_end = UniqueFd(ends[1])};
}

}  // namespace

class VirtualProcesses::Child final : public ChildProcess {
 public:
  using ChildProcess::Pipes;

  Child(ProcessId process, UniqueFd end_event, Pipes pipes)
      : ChildProcess(kFirstPid + process, std::move(end_event), "", std::move(pipes)), process_(process) {}

  void SignalGroup(int signo) const override { Get().Signal(pid(), signo); }
  void SignalAlone(int signo) const override { Get().Signal(pid(), signo); }

  std::optional<int> NextMotion() const override {
    std::deque<int>& motions = Get().processes_[process_].motions;
    if (motions.empty()) return std::nullopt;
    const int signo = motions.front();
    motions.pop_front();
    return signo;
  }

  End Collect() override {
    ClosePidfd();
    const int exit_code = VirtualWorld::Get().ExitCode(process_);
    if (exit_code == VirtualWorld::kKilledExit) return {.exit_code = 0, .signal = SIGKILL};
    if (exit_code == VirtualWorld::kTerminatedExit) return {.exit_code = 0, .signal = SIGABRT};
    return {.exit_code = exit_code, .signal = 0};
  }

 private:
  const ProcessId process_;
};

VirtualProcesses& VirtualProcesses::Get() {
  static VirtualProcesses* const processes = new VirtualProcesses;
  return *processes;
}

void VirtualProcesses::Begin(Program program, std::function<void(ProcessId process)> on_end) {
  program_ = std::move(program);
  on_end_ = std::move(on_end);
  VirtualWorld::Get().SetOnEnd([this](ProcessId process) { OnEnd(process); });
}

absl::StatusOr<std::unique_ptr<ChildProcess>> VirtualProcesses::Start(const ChildProcess::Options& options) const {
  const VirtualWorld::Shield shield;
  Pipe input = MakePipe(), output = MakePipe(), errors = MakePipe();
  auto descriptors = std::make_shared<Descriptors>();
  for (const int fd : options.inherited_fds) descriptors->inherited.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  descriptors->input = std::move(input.read_end);
  descriptors->output = std::move(output.write_end);
  descriptors->errors = std::move(errors.write_end);
  const ProcessId process = VirtualWorld::Get().StartProcess(
      absl::StrJoin(options.command, " "),
      [this, options, descriptors] { return program_(options, std::move(*descriptors)); });
  VirtualProcesses& self = Get();
  for (const UniqueFd* const fd : {&descriptors->input, &descriptors->output, &descriptors->errors}) {
    self.Give(fd->get(), process);
  }
  for (const UniqueFd& fd : descriptors->inherited) self.Give(fd.get(), process);
  UniqueFd end_event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const ProcessId parent = VirtualWorld::Get().current_process();
  if (options.input != ChildProcess::Input::kPipe) input.write_end.Reset();
  for (const int fd : {input.write_end.get(), output.read_end.get(), errors.read_end.get(), end_event.get()}) {
    if (fd >= 0) self.Give(fd, parent);
  }
  self.processes_[process] = {.parent = parent, .end_event = end_event.get(), .motions = {}};
  return std::make_unique<Child>(process, std::move(end_event),
                                 Child::Pipes{.input = std::move(input.write_end),
                                              .outputs = {std::move(output.read_end), std::move(errors.read_end)}});
}

void VirtualProcesses::Give(int fd, ProcessId process) {
  const VirtualWorld::Shield shield;
  owners_[fd] = process;
}

int VirtualProcesses::Close(int fd) {
  const VirtualWorld::Shield shield;
  peers_.erase(fd);
  listeners_.erase(fd);
  const auto owner = owners_.find(fd);
  if (owner == owners_.end()) return RealCalls::Get().close(fd);
  if (!VirtualWorld::Get().IsAlive(owner->second)) return 0;
  owners_.erase(owner);
  return RealCalls::Get().close(fd);
}

// Keeps the descriptor numbers of a dead process in use, because its threads may still use them.
void VirtualProcesses::OnEnd(ProcessId process) {
  const VirtualWorld::Shield shield;
  const UniqueFd nothing(RealCalls::Get().open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const auto& [fd, owner] : owners_) {
    if (owner == process) dup3(nothing.get(), fd, O_CLOEXEC);
  }
  if (const auto ended = processes_.find(process); ended != processes_.end()) {
    eventfd_write(ended->second.end_event, 1);
  }
  for (const auto& [child, state] : processes_) {
    if (state.parent == process) VirtualWorld::Get().Kill(child);
  }
  on_end_(process);
}

bool VirtualProcesses::Signal(pid_t pid, int signo) {
  const ProcessId process = pid - kFirstPid;
  if (!processes_.contains(process)) return false;
  if (signo == SIGKILL) VirtualWorld::Get().Kill(process);
  if (signo == SIGTERM) asked_to_end_.insert(process);
  return true;
}

void VirtualProcesses::TellMotion(ProcessId process, int signo) {
  Process& told = processes_[process];
  told.motions.push_back(signo);
  child_signals_.insert(told.parent);
}

bool VirtualProcesses::TakeChildSignal() { return child_signals_.erase(VirtualWorld::Get().current_process()) > 0; }

bool VirtualProcesses::TakeName(const std::string& name) {
  const VirtualWorld& world = VirtualWorld::Get();
  const auto holder = names_.find(name);
  if (holder != names_.end() && world.IsAlive(holder->second)) return false;
  names_[name] = world.current_process();
  return true;
}

bool VirtualProcesses::ConnectToName(int fd, const std::string& name) {
  const auto holder = names_.find(name);
  if (holder == names_.end() || !VirtualWorld::Get().IsAlive(holder->second)) return false;
  peers_[fd] = holder->second;
  return true;
}

std::optional<pid_t> VirtualProcesses::PeerOf(int fd) const {
  const auto peer = peers_.find(fd);
  return peer == peers_.end() ? std::nullopt : std::optional<pid_t>(kFirstPid + peer->second);
}

}  // namespace ronda::simulation
