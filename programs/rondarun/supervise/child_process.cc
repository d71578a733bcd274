// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/child_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "programs/rondarun/supervise/command_error.h"
#include "programs/rondarun/supervise/descriptors.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot create a pipe (pipe2)");
  return Pipe{.read_end = UniqueFd(ends[0]), .write_end = UniqueFd(ends[1])};
}

// The system call that failed in the child process, and its errno. The child sends the name of the call as a pointer to
// a string literal, which has the same address in the parent.
struct StartFailure {
  const char* call = nullptr;  // nullptr: none
  int error = 0;
};

// All data that the child needs between fork and exec, where it must not allocate memory.
struct ChildSetup {
  pid_t launcher;
  char* const* argv;
  char* const* environment;
  std::array<int, 3> streams;  // become descriptors 0, 1 and 2
  int error_pipe;              // carries the StartFailure
  const std::vector<int>& inherited_fds;
  ChildProcess::AtLauncherDeath at_launcher_death;
  const cpu_set_t* cpus;  // nullptr: the launcher's
  SystemProcesses::Context context;
};

// Arranges with the kernel and the guard that this process ends when the launcher dies. Returns the call that failed,
// or nullptr.
const char* BindToLauncher(const ChildSetup& setup) {
  const bool kill = setup.at_launcher_death == ChildProcess::AtLauncherDeath::kKill;
  if (prctl(PR_SET_PDEATHSIG, kill ? SIGKILL : SIGTERM) != 0) return "prctl(PR_SET_PDEATHSIG)";
  if (getppid() != setup.launcher) _exit(1);  // the launcher died before the prctl call
  if (setpgid(0, 0) != 0) return "setpgid";
  setup.context.guard->Watch(getpid(), kill ? Guard::Grace::kNone : Guard::Grace::kSome);
  return nullptr;
}

constexpr char kExec[] = "execvpe";

// Returns only if a system call fails. The result is the name of that call, and errno is set. All calls made here are
// async-signal-safe, except that execvpe is so only in practice.
const char* BecomeCommand(const ChildSetup& setup) {
  if (const char* const failed = BindToLauncher(setup)) return failed;
  for (int fd = 0; fd < 3; ++fd) {
    const int source = setup.streams[static_cast<size_t>(fd)];
    if (source != fd && dup2(source, fd) < 0) return "dup2";
  }
  // SIGTTIN stops a process that reads from the terminal while it is not in the terminal's foreground group. The
  // launcher's parent may have set SIGTTIN to be ignored.
  if (isatty(STDIN_FILENO) == 1) signal(SIGTTIN, SIG_DFL);
  if (setup.cpus != nullptr && sched_setaffinity(0, sizeof(*setup.cpus), setup.cpus) != 0) return "sched_setaffinity";
  setrlimit(RLIMIT_NOFILE, &setup.context.file_limit);
  CloseAllOnExec();  // the launcher's own descriptors have CLOEXEC anyway; these are others that it inherited
  for (const int fd : setup.inherited_fds) {
    if (fcntl(fd, F_SETFD, 0) != 0) return "fcntl";
  }
  setup.context.signals->RestoreInChild();
  execvpe(setup.argv[0], setup.argv, setup.environment);
  return kExec;
}

[[noreturn]] void RunChild(const ChildSetup& setup) {
  StartFailure failure;
  failure.call = BecomeCommand(setup);
  failure.error = errno;
  [[maybe_unused]] const ssize_t count = write(setup.error_pipe, &failure, sizeof(failure));
  _exit(127);
}

// Reads the child's report of a failed start. The result is empty if the pipe was closed because the command is
// running.
StartFailure ReadChildFailure(int pipe) {
  StartFailure failure;
  ssize_t count = 0;
  do {
    count = read(pipe, &failure, sizeof(failure));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(failure) ? failure : StartFailure();
}

// Makes the system call directly, because glibc 2.36 declares pidfd_open without C linkage.
int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

absl::Status StartError(const ChildProcess::Options& options, const StartFailure& failure) {
  if (failure.call == kExec) return CommandError({options.command, options.words_before}, failure.error);
  // A container's security profile may refuse system calls that older programs do not use.
  return absl::ErrnoToStatus(
      failure.error, absl::StrCat("cannot start ", options.command.front(), ": the system refuses ", failure.call));
}

// Tries the calls that the launcher needs to end a process. Returns the first call that the system refuses, with errno
// set, or nullptr. The calls must be tried before the process starts: if one were refused only later, the launcher
// could not end the process, or could not learn how it ended.
const char* RefusedCall() {
  siginfo_t info = {};
  if (kill(getpid(), 0) != 0) return "kill";
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno != ECHILD) return "waitid";
  return nullptr;
}

std::vector<char*> PointersTo(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  // exec takes char* for historical reasons, but does not change the strings.
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<Pipe> OpenInput(ChildProcess::Input input) {
  using Input = ChildProcess::Input;
  if (input == Input::kTerminal || (input == Input::kNoTerminal && isatty(STDIN_FILENO) != 1)) return Pipe();
  if (input == Input::kPipe) return MakePipe();
  Pipe null;
  null.read_end.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.read_end.valid()) return absl::ErrnoToStatus(errno, "cannot open /dev/null");
  return null;
}

// Sets RONDA_LAUNCH in the environment to `mark`. This replaces the mark of another launcher that started this
// launcher.
std::vector<std::string> WithMark(std::vector<std::string> environment, const std::string& mark) {
  std::erase_if(environment, [](const std::string& each) { return absl::StartsWith(each, Guard::kVariable); });
  environment.push_back(absl::StrCat(Guard::kVariable, mark));
  return environment;
}

cpu_set_t MakeCpuSet(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  return set;
}

class SystemProcess final : public ChildProcess {
 public:
  SystemProcess(pid_t pid, UniqueFd pidfd, std::string mark, Pipe input, Pipe out, Pipe err, const Guard* guard)
      : ChildProcess(
            pid, std::move(pidfd), std::move(mark),
            {.input = std::move(input.write_end), .outputs = {std::move(out.read_end), std::move(err.read_end)}}),
        guard_(*guard) {}

  void SignalGroup(int signo) const override {
    // If there is no such group, the process has moved to another group, but it still belongs to the job.
    if (kill(-pid(), signo) != 0) kill(pid(), signo);
  }
  void SignalAlone(int signo) const override { kill(pid(), signo); }
  std::optional<int> NextMotion() const override;
  End Collect() override;

 private:
  id_t id() const { return static_cast<id_t>(pidfd()); }

  const Guard& guard_;
};

std::optional<int> SystemProcess::NextMotion() const {
  siginfo_t info = {};
  if (waitid(P_PIDFD, id(), &info, WSTOPPED | WCONTINUED | WNOHANG) != 0 || info.si_pid == 0) return std::nullopt;
  return info.si_code == CLD_STOPPED ? info.si_status : SIGCONT;
}

ChildProcess::End SystemProcess::Collect() {
  // First get the exit code without reaping the process, and then kill its group. Until the process is reaped, no other
  // process group can get the same number.
  siginfo_t info = {};
  waitid(P_PIDFD, id(), &info, WEXITED | WNOWAIT);
  kill(-pid(), SIGKILL);
  guard_.Release(pid());
  waitid(P_PIDFD, id(), &info, WEXITED);
  ClosePidfd();
  if (info.si_code == CLD_EXITED) return {.exit_code = info.si_status, .signal = 0};
  return {.exit_code = 0, .signal = info.si_status};
}

// Waits until the command is running, and returns the pidfd of its process. After an error, nothing remains of the
// process.
absl::StatusOr<UniqueFd> AwaitStart(pid_t pid, int failure_pipe, const ChildProcess::Options& options,
                                    const Guard& guard) {
  StartFailure failure = ReadChildFailure(failure_pipe);
  if (failure.call == nullptr) {
    UniqueFd pidfd(OpenPidfd(pid));
    if (pidfd.valid()) return pidfd;
    failure = {.call = "pidfd_open", .error = errno};
  }
  if (kill(-pid, SIGKILL) != 0) kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  guard.Release(pid);
  return StartError(options, failure);
}

}  // namespace

ChildProcess::ChildProcess(pid_t pid, UniqueFd pidfd, std::string mark, Pipes pipes)
    : pid_(pid),
      pidfd_(std::move(pidfd)),
      mark_(std::move(mark)),
      input_(std::move(pipes.input)),
      outputs_(std::move(pipes.outputs)) {
  for (const UniqueFd& output : outputs_) fcntl(output.get(), F_SETFL, O_NONBLOCK);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> SystemProcesses::Start(const ChildProcess::Options& options) const {
  RONDA_RETURN_IF_ERROR(CheckScript({options.command, options.words_before}));
  if (const char* const refused = RefusedCall()) return StartError(options, {.call = refused, .error = errno});
  RONDA_ASSIGN_OR_RETURN(Pipe input, OpenInput(options.input));
  RONDA_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  RONDA_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  RONDA_ASSIGN_OR_RETURN(Pipe failure, MakePipe());
  const std::vector<char*> argv = PointersTo(options.command);
  std::string mark = context_.guard->NewMark();
  const std::vector<std::string> variables = WithMark(options.environment, mark);
  const std::vector<char*> environment = PointersTo(variables);
  const cpu_set_t cpus = MakeCpuSet(options.cpus);
  const ChildSetup setup{.launcher = getpid(),
                         .argv = argv.data(),
                         .environment = environment.data(),
                         .streams = {input.read_end.valid() ? input.read_end.get() : STDIN_FILENO, out.write_end.get(),
                                     err.write_end.get()},
                         .error_pipe = failure.write_end.get(),
                         .inherited_fds = options.inherited_fds,
                         .at_launcher_death = options.at_launcher_death,
                         .cpus = options.cpus.empty() ? nullptr : &cpus,
                         .context = context_};
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (pid == 0) RunChild(setup);

  failure.write_end.Reset();
  RONDA_ASSIGN_OR_RETURN(UniqueFd pidfd, AwaitStart(pid, failure.read_end.get(), options, *context_.guard));
  return std::make_unique<SystemProcess>(pid, std::move(pidfd), std::move(mark), std::move(input), std::move(out),
                                         std::move(err), context_.guard);
}

}  // namespace ronda
