// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/process_world.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "programs/options/local_host.h"
#include "runtime/base/clock.h"

namespace ronda::testing {
namespace {

constexpr char kProgramFlag[] = "--rank_program=";

struct Child {
  pid_t pid = -1;  // -1: it could not be started
  std::string output_path;
};

std::string NewJobId() {
  static std::atomic<int> jobs{0};
  return absl::StrCat("test-", getpid(), "-", jobs++);
}

std::vector<std::string> Environment(const ProcessJob& job, const std::string& job_id, int rank) {
  std::vector<std::string> environment = EnvironmentOfRanks(job.env);
  environment.push_back(absl::StrCat("RONDA_JOB_ID=", job_id));
  environment.push_back(absl::StrCat("RONDA_RANK=", rank));
  environment.push_back(absl::StrCat("RONDA_SIZE=", job.size));
  return environment;
}

Child Start(const ProcessJob& job, const std::string& job_id, int rank) {
  Child child;
  child.output_path = absl::StrCat(::testing::TempDir(), "/", job_id, ".", rank);
  std::vector<std::string> argv = job.argv;
  std::vector<std::string> environment = Environment(job, job_id, rank);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // O_APPEND keeps standard output and standard error from overwriting each other in the file.
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, child.output_path.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const int error =
      posix_spawn(&child.pid, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << argv[0] << " cannot be started, with its output in " << child.output_path;
  if (error != 0) child.pid = -1;
  return child;
}

// Waits for `pid` to end, until `deadline` at most. Returns whether it has ended.
bool AwaitEnd(pid_t pid, absl::Time deadline) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd event = {fd, POLLIN, 0};
  const int64_t left = absl::ToInt64Milliseconds(deadline - SteadyNow());
  const int ready = poll(&event, 1, static_cast<int>(std::max<int64_t>(left, 0)));
  close(fd);
  return ready == 1;
}

std::string ReadAndRemove(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  return contents.str();
}

ProcessResult Collect(const Child& child, absl::Time deadline) {
  ProcessResult result;
  // Without this check, kill(-1) would kill every process on the machine.
  if (child.pid < 0) return result;
  const bool ended = AwaitEnd(child.pid, deadline);
  if (!ended) kill(child.pid, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(child.pid, &status, 0), child.pid);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.output = ReadAndRemove(child.output_path);
  if (!ended) absl::StrAppend(&result.output, "\n[killed by the test: it ran longer than allowed]\n");
  return result;
}

std::vector<std::string> SharedMemoryOf(const std::string& job_id) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    std::string name = file.path().filename();
    if (absl::StrContains(name, job_id)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::vector<std::string> EnvironmentOfRanks(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    // Removes Ronda's variables, for example those of an outer job, because they could contradict the variables below.
    // Keeps the path in RONDA_HOSTS_PLUGIN.
    const bool is_kept = !absl::StartsWith(*variable, "RONDA_") || absl::StartsWith(*variable, "RONDA_HOSTS_PLUGIN=");
    if (is_kept) environment.push_back(*variable);
  }
  for (const auto& [name, value] : added) environment.push_back(absl::StrCat(name, "=", value));
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> ArgumentsOfRankProgram(const std::string& name) {
  return {std::filesystem::read_symlink("/proc/self/exe"), kProgramFlag + name};
}

JobResult RunProcesses(const ProcessJob& job) {
  JobResult result;
  result.job_id = NewJobId();
  const absl::Time deadline = SteadyNow() + job.timeout;
  std::vector<Child> children;
  children.reserve(job.size);
  for (int rank = 0; rank < job.size; ++rank) children.push_back(Start(job, result.job_id, rank));
  for (const Child& child : children) result.ranks.push_back(Collect(child, deadline));
  result.left_in_shared_memory = SharedMemoryOf(result.job_id);
  return result;
}

int RankProgramMain(int argc, char** argv, const std::vector<RankProgram>& programs) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2 || !absl::StartsWith(argv[1], kProgramFlag)) return RUN_ALL_TESTS();
  const std::string name = argv[1] + sizeof(kProgramFlag) - 1;
  for (const RankProgram& program : programs) {
    if (program.name != name) continue;
    program.body();
    // GoogleTest records in this result the expectations that fail outside of a test.
    return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
  }
  fprintf(stderr, "no rank program is named '%s'\n", name.c_str());
  return 2;
}

JobResult RunRankProgram(const std::string& name, int size, ProcessJob job) {
  job.size = size;
  job.argv = ArgumentsOfRankProgram(name);
  return RunProcesses(job);
}

void ExpectRankProgramSucceeds(const std::string& name, int size, ProcessJob job) {
  const JobResult result = RunRankProgram(name, size, std::move(job));
  for (int rank = 0; rank < size; ++rank) {
    const ProcessResult& process = result.ranks[rank];
    EXPECT_EQ(process.exit_code, 0) << name << ", rank " << rank << " of " << size << ", signal " << process.signal
                                    << ", said:\n"
                                    << process.output;
  }
  EXPECT_TRUE(result.left_in_shared_memory.empty()) << result.left_in_shared_memory.front();
}

std::string FreePort() { return absl::StrCat(FindFreePorts(1).front()); }

std::string PathOfMpirun(MpiFlavor flavor) {
  return flavor == MpiFlavor::kOpenMpi ? "/usr/bin/mpirun.openmpi" : "/usr/bin/mpirun.mpich";
}

bool HasMpirun(MpiFlavor flavor) { return access(PathOfMpirun(flavor).c_str(), X_OK) == 0; }

ProcessResult RunUnderMpirun(MpiFlavor flavor, int size, const std::vector<std::string>& argv) {
  ProcessJob job;
  job.argv = {PathOfMpirun(flavor), "-np", absl::StrCat(size)};
  job.argv.insert(job.argv.end(), argv.begin(), argv.end());
  job.env = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
             // Allows more ranks than cores, as --oversubscribe does.
             {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
             // Does not bind ranks to cores, because other tests run at the same time.
             {"OMPI_MCA_hwloc_base_binding_policy", "none"}};
  return RunProcesses(job).ranks.front();
}

namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    read_end = ends[0];
    write_end = ends[1];
  }
  int read_end;
  int write_end;
};

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
  return text;
}

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n <= 0) std::abort();
    done += static_cast<size_t>(n);
  }
}

}  // namespace

ForkedChild::ForkedChild(const std::function<std::string(const SayReady&)>& body) {
  const Pipe ready;
  const Pipe result;
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    const std::string text = body([&] { close(ready.write_end); });
    WriteAll(result.write_end, text);
    // Calls _exit(), because exit() would run the handlers that the parent has registered.
    _exit(0);
  }
  close(ready.write_end);
  close(result.write_end);
  ready_pipe_ = ready.read_end;
  result_pipe_ = result.read_end;
}

ForkedChild::~ForkedChild() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(ready_pipe_);
  close(result_pipe_);
}

void ForkedChild::WaitUntilReady() { ReadAll(ready_pipe_); }

std::string ForkedChild::Result() { return ReadAll(result_pipe_); }

}  // namespace ronda::testing
