// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/harness/output.h"
#include "bench/harness/temporary_folder.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/unique_fd.h"

namespace ronda::bench {
namespace {

// The environment variables through which a launcher tells a process its rank, the job size, and the number of ranks on
// its host.
struct LauncherVariables {
  const char* rank;
  const char* size;
  const char* local_size;
  const char* job_id;  // nullptr: it has none
  Launcher launcher;
};

constexpr LauncherVariables kLaunchers[] = {
    {"RONDA_RANK", "RONDA_SIZE", "RONDA_LOCAL_SIZE", "RONDA_JOB_ID", Launcher::kRondarun},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, Launcher::kOpenMpi},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr, Launcher::kMpich},
};

absl::StatusOr<int> ReadNumber(const ReadVariable& variable, const char* name) {
  const std::string text = variable(name).value_or("");
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 0) return number;
  return absl::InvalidArgumentError(absl::StrCat(name, "=\"", text, "\" is no number from 0 up"));
}

absl::StatusOr<LaunchedRank::Rendezvous> FindRendezvous(const ReadVariable& variable, const char* local_size_name,
                                                        int size) {
  using Rendezvous = LaunchedRank::Rendezvous;
  const std::string backend = variable("RONDA_BACKEND").value_or("");
  if (!backend.empty() && backend != "shm") return Rendezvous::kAsInit;
  if (!variable(local_size_name)) return Rendezvous::kInMemory;
  RONDA_ASSIGN_OR_RETURN(const int local_size, ReadNumber(variable, local_size_name));
  return local_size < size ? Rendezvous::kAsInit : Rendezvous::kInMemory;
}

// The settings that make Open MPI fastest for large messages on one host. They select copies through shared memory
// instead of system calls, and an allocator that returns no memory to the system.
constexpr std::pair<const char*, const char*> kBestOpenMpi[] = {
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
    {"MALLOC_MMAP_THRESHOLD_", "1073741824"},
    {"MALLOC_TRIM_THRESHOLD_", "1073741824"},
    {"MALLOC_TOP_PAD_", "268435456"},
};

// The settings that make MPICH fastest: an allocator that returns no memory to the system.
constexpr std::pair<const char*, const char*> kBestMpich[] = {
    {"MALLOC_MMAP_THRESHOLD_", "1073741824"},
    {"MALLOC_TRIM_THRESHOLD_", "1073741824"},
    {"MALLOC_TOP_PAD_", "268435456"},
};

absl::StatusOr<std::string> Locate(const FindProgram& find_program, const std::vector<std::string>& names,
                                   const std::string& cure) {
  for (const std::string& name : names) {
    std::string path = find_program(name);
    if (!path.empty()) return path;
  }
  return absl::NotFoundError(absl::StrCat(names.front(), " is not here: ", cure));
}

absl::StatusOr<LaunchCommand> PlanRondarun(const LaunchRequest& request, const FindProgram& find_program) {
  RONDA_ASSIGN_OR_RETURN(const std::string launcher,
                         Locate(find_program, {"rondarun"}, "install it beside ronda-bench, or build it"));
  LaunchCommand plan{.words = {launcher, "-np", absl::StrCat(request.ranks)}};
  plan.words.insert(plan.words.end(), request.options.begin(), request.options.end());
  return plan;
}

absl::StatusOr<LaunchCommand> PlanOpenMpi(const LaunchRequest& request, const FindProgram& find_program) {
  RONDA_ASSIGN_OR_RETURN(const std::string launcher,
                         Locate(find_program, {"mpirun.openmpi", "orterun"}, "install Debian's openmpi-bin"));
  LaunchCommand plan{.words = {launcher, "-np", absl::StrCat(request.ranks), "--oversubscribe"}};
  if (request.user_id == 0) {
    plan.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  }
  if (request.setting == PeerSetting::kBest) {
    plan.environment.insert(plan.environment.end(), std::begin(kBestOpenMpi), std::end(kBestOpenMpi));
  }
  return plan;
}

absl::StatusOr<LaunchCommand> PlanMpich(const LaunchRequest& request, const FindProgram& find_program) {
  RONDA_ASSIGN_OR_RETURN(const std::string launcher,
                         Locate(find_program, {"mpiexec.hydra", "mpiexec.mpich"}, "install Debian's mpich"));
  LaunchCommand plan{.words = {launcher, "-np", absl::StrCat(request.ranks)}};
  if (request.setting == PeerSetting::kBest) {
    plan.environment.insert(plan.environment.end(), std::begin(kBestMpich), std::end(kBestMpich));
  }
  return plan;
}

bool IsExecutable(const std::string& path) {
  struct stat file;
  return stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && access(path.c_str(), X_OK) == 0;
}

// A named pipe in a temporary folder. The destructor removes the pipe and the folder.
class NamedPipe {
 public:
  static absl::StatusOr<NamedPipe> Create() {
    NamedPipe pipe;
    RONDA_ASSIGN_OR_RETURN(pipe.folder_, TemporaryFolder::Create());
    if (mkfifo(pipe.path().c_str(), S_IRUSR | S_IWUSR) != 0) return Refused(pipe.path());
    // The reading process opens the pipe for writing too. Otherwise, its reads would return end-of-file until rank 0
    // opens the pipe.
    pipe.end_ = UniqueFd(open(pipe.path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!pipe.end_.valid()) return Refused(pipe.path());
    return pipe;
  }

  std::string path() const { return folder_->PathOf("output"); }
  int fd() const { return end_.get(); }

 private:
  static absl::Status Refused(const std::string& path) {
    return absl::UnavailableError(absl::StrCat("cannot create the pipe ", path, ": ", std::strerror(errno)));
  }

  std::unique_ptr<TemporaryFolder> folder_;
  UniqueFd end_;
};

// Reads messages from the pipe.
class OutputReader {
 public:
  OutputReader(int fd, const MessageSink& sink) : fd_(fd), sink_(sink) {}

  // Passes all messages that have arrived so far to the sink.
  void Drain() {
    std::array<char, 4096> bytes;
    ssize_t count = 0;
    while ((count = read(fd_, bytes.data(), bytes.size())) > 0) {
      pending_.append(bytes.data(), static_cast<size_t>(count));
      HandOnLines();
    }
  }

 private:
  void HandOnLines() {
    size_t begin = 0;
    for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      sink_(DecodeLine(pending_.substr(begin, end - begin)));
    }
    pending_.erase(0, begin);
  }

  const int fd_;
  const MessageSink& sink_;
  std::string pending_;
};

void WriteTo(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) {
    std::fprintf(stderr, "ronda-bench: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
    _exit(127);
  }
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
}

[[noreturn]] void Become(const LaunchCommand& command) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  std::signal(SIGINT, SIG_DFL);
  if (!command.output_file.empty()) WriteTo(command.output_file);
  constexpr int kOverwrite = 1;
  for (const auto& [name, value] : command.environment) setenv(name.c_str(), value.c_str(), kOverwrite);
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  std::fprintf(stderr, "ronda-bench: cannot run %s: %s\n", words[0], std::strerror(errno));
  _exit(127);
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

// Waits until the process exits, and passes on the messages that arrive meanwhile.
int Attend(pid_t process, OutputReader* reader, int fd) {
  constexpr int kPollMilliseconds = 50;
  int wait_status = 0;
  while (waitpid(process, &wait_status, WNOHANG) == 0) {
    pollfd readable = {.fd = fd, .events = POLLIN, .revents = 0};
    poll(&readable, 1, kPollMilliseconds);
    reader->Drain();
  }
  reader->Drain();
  return ExitCode(wait_status);
}

}  // namespace

ReadVariable ProcessVariables() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

absl::StatusOr<std::optional<LaunchedRank>> FindLaunchedRank(const ReadVariable& variable, int parent) {
  for (const LauncherVariables& names : kLaunchers) {
    if (!variable(names.rank)) continue;
    LaunchedRank launched{.launcher = names.launcher};
    RONDA_ASSIGN_OR_RETURN(launched.rank, ReadNumber(variable, names.rank));
    RONDA_ASSIGN_OR_RETURN(launched.size, ReadNumber(variable, names.size));
    if (launched.rank >= launched.size) {
      return absl::InvalidArgumentError(
          absl::StrCat(names.rank, "=", launched.rank, ", but ", names.size, "=", launched.size));
    }
    launched.job_id = names.job_id != nullptr ? variable(names.job_id).value_or("") : "";
    if (launched.job_id.empty()) launched.job_id = absl::StrCat("bench-", parent);
    RONDA_ASSIGN_OR_RETURN(launched.rendezvous, FindRendezvous(variable, names.local_size, launched.size));
    return std::optional<LaunchedRank>(std::move(launched));
  }
  return std::optional<LaunchedRank>();
}

void DescribeJobToRonda(const LaunchedRank& launched) {
  if (launched.rendezvous == LaunchedRank::Rendezvous::kAsInit) return;
  constexpr int kOverwrite = 1;
  setenv("RONDA_RANK", absl::StrCat(launched.rank).c_str(), kOverwrite);
  setenv("RONDA_SIZE", absl::StrCat(launched.size).c_str(), kOverwrite);
  setenv("RONDA_JOB_ID", launched.job_id.c_str(), kOverwrite);
}

std::string OwnProgram() {
  std::array<char, PATH_MAX> path;
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : "";
}

FindProgram FindInstalledProgram() {
  return [](const std::string& name) -> std::string {
    const std::string program = OwnProgram();
    const std::string beside = program.substr(0, program.rfind('/') + 1);
    std::vector<std::string> candidates = {beside + name, absl::StrCat(beside, "../programs/rondarun/", name),
                                           absl::StrCat(beside, "../lib/ronda/", name)};
    const char* const path = std::getenv("PATH");
    for (const absl::string_view directory : absl::StrSplit(path != nullptr ? path : "", ':')) {
      candidates.push_back(absl::StrCat(directory, "/", name));
    }
    for (const std::string& candidate : candidates) {
      if (IsExecutable(candidate)) return candidate;
    }
    return "";
  };
}

absl::StatusOr<LaunchCommand> PlanLaunch(const LaunchRequest& request, const FindProgram& find_program) {
  constexpr decltype(&PlanRondarun) kPlans[] = {PlanRondarun, PlanOpenMpi, PlanMpich};
  RONDA_ASSIGN_OR_RETURN(LaunchCommand plan, kPlans[static_cast<int>(request.launcher)](request, find_program));
  plan.words.insert(plan.words.end(), request.command.begin(), request.command.end());
  return plan;
}

absl::StatusOr<int> ShowLaunch(const LaunchCommand& command, const MessageSink& sink) {
  ProgressBar progress(stderr);
  return RunLaunch(command, [&](const OutputMessage& message) {
    switch (message.kind) {
      case OutputMessage::Kind::kProgress:
        progress.Show(message.fraction, message.text);
        break;
      case OutputMessage::Kind::kText:
        progress.Clear();
        std::fputs(message.text.c_str(), stdout);
        std::fflush(stdout);
        break;
      default:
        sink(message);
    }
  });
}

absl::StatusOr<pid_t> StartLaunch(const LaunchCommand& command) {
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process < 0) return absl::UnavailableError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
  if (process == 0) Become(command);
  return process;
}

std::string LastLines(const std::string& output_file) {
  constexpr size_t kMost = 1000;
  const std::string text = ReadFile(output_file).value_or("");
  if (text.size() <= kMost) return text;
  const size_t line_end = text.find('\n', text.size() - kMost);
  return text.substr(line_end < text.size() - 1 ? line_end + 1 : text.size() - kMost);
}

absl::StatusOr<int> RunLaunch(const LaunchCommand& command, const MessageSink& sink) {
  RONDA_ASSIGN_OR_RETURN(const NamedPipe pipe, NamedPipe::Create());
  LaunchCommand with_pipe = command;
  with_pipe.environment.emplace_back(kOutputVariable, pipe.path());
  // Ctrl+C also reaches the launcher, which then ends its ranks. This process ignores Ctrl+C so that it outlives the
  // launcher.
  std::signal(SIGINT, SIG_IGN);
  RONDA_ASSIGN_OR_RETURN(const pid_t process, StartLaunch(with_pipe));
  OutputReader reader(pipe.fd(), sink);
  return Attend(process, &reader, pipe.fd());
}

}  // namespace ronda::bench
