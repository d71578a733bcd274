#include "runtime/launch/supervise/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/launch/supervise/descriptors.h"

namespace ronda {
namespace {

// A message through the pipe. So short a write is atomic.
struct Message {
  enum class Kind { kWatch, kWatchPatiently, kRelease } kind;
  pid_t group;
};

// How long helpers may take to end their own processes.
constexpr int kPatienceSeconds = 10;

// Keeps nothing of the launcher but `pipe`: a reader that waits for the end of the launcher's output must not wait for
// the guard.
void LetGoOfEverythingBut(int pipe) {
  setsid();
  prctl(PR_SET_NAME, "rondarun-guard");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // Not to keep a file system busy. The working directory is of no use here.
  [[maybe_unused]] const int changed = chdir("/");
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  CloseAllBut(pipe);
}

struct Groups {
  std::set<pid_t> at_once;
  std::set<pid_t> patiently;
};

void Take(const Message& message, Groups* groups) {
  switch (message.kind) {
    case Message::Kind::kWatch:
      groups->at_once.insert(message.group);
      return;
    case Message::Kind::kWatchPatiently:
      groups->patiently.insert(message.group);
      return;
    case Message::Kind::kRelease:
      groups->at_once.erase(message.group);
      groups->patiently.erase(message.group);
      return;
  }
}

// The groups that are left when the launcher is gone.
Groups WatchUntilEnd(int pipe) {
  Groups groups;
  Message message;
  while (true) {
    const ssize_t count = read(pipe, &message, sizeof(message));
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof(message)) return groups;
    Take(message, &groups);
  }
}

// The kernel has told their leaders to end.
void AwaitEnd(const std::set<pid_t>& groups) {
  const auto is_over = [](pid_t group) { return kill(-group, 0) != 0; };
  for (int tenths = 0; tenths < 10 * kPatienceSeconds; ++tenths) {
    if (std::all_of(groups.begin(), groups.end(), is_over)) return;
    usleep(100'000);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
}

[[noreturn]] void RunGuard(int pipe, const std::string& job_id) {
  LetGoOfEverythingBut(pipe);
  const Groups groups = WatchUntilEnd(pipe);
  for (const pid_t group : groups.at_once) kill(-group, SIGKILL);
  AwaitEnd(groups.patiently);
  RemoveSharedMemoryLeftovers(job_id);
  _exit(0);
}

void Send(int pipe, const Message& message) {
  // Without a guard no message is needed; the job goes on.
  [[maybe_unused]] const ssize_t count = write(pipe, &message, sizeof(message));
}

// Where the kernel does not list them, there are none to be known.
std::vector<pid_t> Children() {
  std::ifstream file(absl::StrCat("/proc/self/task/", getpid(), "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Guard>> Guard::Start(const std::string& job_id) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot create a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot start the process that watches over the job");
  if (pid == 0) RunGuard(read_end.get(), job_id);
  return absl::WrapUnique(new Guard(pid, std::move(write_end)));
}

Guard::Guard(pid_t pid, UniqueFd pipe) : pid_(pid), pipe_(std::move(pipe)) {}

Guard::~Guard() {
  pipe_.Reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::Watch(pid_t group, Patience patience) const {
  const bool patiently = patience == Patience::kSome;
  Send(pipe_.get(), {.kind = patiently ? Message::Kind::kWatchPatiently : Message::Kind::kWatch, .group = group});
}

void Guard::Release(pid_t group) const { Send(pipe_.get(), {.kind = Message::Kind::kRelease, .group = group}); }

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void KillOrphans(const std::vector<pid_t>& spared) {
  while (true) {
    std::vector<pid_t> orphans = Children();
    const auto is_spared = [&](pid_t pid) { return std::find(spared.begin(), spared.end(), pid) != spared.end(); };
    orphans.erase(std::remove_if(orphans.begin(), orphans.end(), is_spared), orphans.end());
    if (orphans.empty()) return;
    for (const pid_t orphan : orphans) kill(orphan, SIGKILL);
    // Theirs are ours from here on.
    for (const pid_t orphan : orphans) waitpid(orphan, nullptr, 0);
  }
}

void RemoveSharedMemoryLeftovers(const std::string& job_id) {
  if (job_id.empty()) return;
  const std::string prefix = absl::StrCat("ronda-", job_id);
  // A machine without /dev/shm has no leftovers, and a file that is gone already is as good as removed.
  std::error_code ignored;
  std::vector<std::filesystem::path> leftovers;
  for (std::filesystem::directory_iterator it("/dev/shm", ignored), end; it != end; it.increment(ignored)) {
    if (absl::StartsWith(it->path().filename().string(), prefix)) leftovers.push_back(it->path());
  }
  for (const std::filesystem::path& leftover : leftovers) std::filesystem::remove(leftover, ignored);
}

}  // namespace ronda
