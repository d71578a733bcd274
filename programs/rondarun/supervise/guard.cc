// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "programs/rondarun/supervise/descriptors.h"
#include "runtime/base/files.h"

namespace ronda {
namespace {

// A message that is sent to the guard through the pipe. It is short enough for write() to send it in one piece.
struct Message {
  enum class Kind { kWatch, kWatchWithGrace, kRelease } kind;
  pid_t group;
};

// How long helpers such as mpirun have to end their own processes.
constexpr int kGraceSeconds = 10;

// If another launcher has started this one, erases that launcher's mark, because that launcher would otherwise kill the
// guard too. The mark is overwritten in the environment's memory, which /proc shows.
void EraseOwnMark() {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (absl::StartsWith(*variable, Guard::kVariable)) std::memset(*variable, 'X', std::strlen(*variable));
  }
}

// Closes all of the launcher's descriptors except `pipe`. If the guard kept the launcher's output open, a reader of
// that output would wait until the guard ends.
void LetGoOfEverythingBut(int pipe) {
  setsid();
  EraseOwnMark();
  prctl(PR_SET_NAME, "rondarun-guard");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // The guard needs no working directory, and must not keep a file system busy.
  [[maybe_unused]] const int changed = chdir("/");
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  CloseAllBut(pipe);
}

struct Groups {
  std::set<pid_t> at_once;
  std::set<pid_t> with_grace;
};

void Apply(const Message& message, Groups* groups) {
  switch (message.kind) {
    case Message::Kind::kWatch:
      groups->at_once.insert(message.group);
      return;
    case Message::Kind::kWatchWithGrace:
      groups->with_grace.insert(message.group);
      return;
    case Message::Kind::kRelease:
      groups->at_once.erase(message.group);
      groups->with_grace.erase(message.group);
      return;
  }
}

// Reads messages until the launcher is gone. Returns the groups that must then be killed.
Groups WatchUntilEnd(int pipe) {
  Groups groups;
  Message message;
  while (true) {
    const ssize_t count = read(pipe, &message, sizeof(message));
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof(message)) return groups;
    Apply(message, &groups);
  }
}

// Waits until the process groups have ended, and kills those that still exist after kGraceSeconds. The kernel has
// already sent SIGTERM to the leaders of the groups.
void AwaitEnd(const std::set<pid_t>& groups) {
  const auto is_over = [](pid_t group) { return kill(-group, 0) != 0; };
  for (int tenths = 0; tenths < 10 * kGraceSeconds; ++tenths) {
    if (std::all_of(groups.begin(), groups.end(), is_over)) return;
    usleep(100'000);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
}

bool IsMarked(absl::string_view variables, const std::vector<std::string>& marks) {
  for (const absl::string_view variable : absl::StrSplit(variables, '\0')) {
    if (!absl::StartsWith(variable, Guard::kVariable)) continue;
    const absl::string_view value = variable.substr(Guard::kVariable.size());
    return std::any_of(marks.begin(), marks.end(), [&](const auto& mark) { return absl::StartsWith(value, mark); });
  }
  return false;
}

struct Search {
  std::vector<pid_t> marked;
  bool is_complete = true;  // false: a process had no environment at that moment, as during exec()
};

// Returns whether the process is running a program, unlike kernel threads and processes that have ended.
bool HasProgram(const std::filesystem::path& process) {
  std::error_code error;
  return !std::filesystem::read_symlink(process / "exe", error).empty();
}

Search SearchMarked(const std::vector<std::string>& marks) {
  Search search;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) continue;
    const absl::StatusOr<std::string> variables = ReadFile(it->path() / "environ");
    if (!variables.ok()) continue;
    if (variables->empty() && HasProgram(it->path())) search.is_complete = false;
    if (IsMarked(*variables, marks)) search.marked.push_back(pid);
  }
  return search;
}

[[noreturn]] void RunGuard(int pipe, const std::string& token, const std::string& job_id) {
  LetGoOfEverythingBut(pipe);
  const Groups groups = WatchUntilEnd(pipe);
  for (const pid_t group : groups.at_once) kill(-group, SIGKILL);
  AwaitEnd(groups.with_grace);
  KillMarked({token});
  RemoveSharedMemoryLeftovers(job_id);
  _exit(0);
}

void Send(int pipe, const Message& message) {
  // If the guard has ended, the message is not needed, and the job continues.
  [[maybe_unused]] const ssize_t count = write(pipe, &message, sizeof(message));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Guard>> Guard::Start(const std::string& job_id) {
  std::random_device random;
  const std::string token = absl::StrFormat("%08x%08x%08x%08x/", random(), random(), random(), random());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot create a pipe (pipe2)");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot start the process that watches over the job (fork)");
  if (pid == 0) RunGuard(read_end.get(), token, job_id);
  return absl::WrapUnique(new Guard(token, pid, std::move(write_end)));
}

Guard::Guard(std::string token, pid_t pid, UniqueFd pipe)
    : token_(std::move(token)), pid_(pid), pipe_(std::move(pipe)) {}

std::string Guard::NewMark() const { return absl::StrCat(token_, marks_++, "/"); }

Guard::~Guard() {
  pipe_.Reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::Watch(pid_t group, Grace grace) const {
  const bool with_grace = grace == Grace::kSome;
  Send(pipe_.get(), {.kind = with_grace ? Message::Kind::kWatchWithGrace : Message::Kind::kWatch, .group = group});
}

void Guard::Release(pid_t group) const { Send(pipe_.get(), {.kind = Message::Kind::kRelease, .group = group}); }

void KillMarked(const std::vector<std::string>& marks) {
  constexpr int kMostTries = 1000;    // a process that waits for a device cannot be killed
  constexpr int kMostIncomplete = 5;  // a program may have been started without variables
  int incomplete = 0;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const Search search = SearchMarked(marks);
    bool is_any_left = false;
    for (const pid_t pid : search.marked) is_any_left |= kill(pid, SIGKILL) == 0;
    if (!is_any_left && (search.is_complete || ++incomplete == kMostIncomplete)) return;
    usleep(1000);
  }
}

void RemoveSharedMemoryLeftovers(const std::string& job_id) {
  if (job_id.empty()) return;
  const std::string prefix = absl::StrCat("ronda-", job_id);
  // If the folder is missing, there is nothing to remove. If the file is already gone, the error does not matter.
  std::error_code ignored;
  std::vector<std::filesystem::path> leftovers;
  for (const std::string& folder : ShmFolders()) {
    for (std::filesystem::directory_iterator it(folder, ignored), end; it != end; it.increment(ignored)) {
      if (absl::StartsWith(it->path().filename().string(), prefix)) leftovers.push_back(it->path());
    }
  }
  for (const std::filesystem::path& leftover : leftovers) std::filesystem::remove(leftover, ignored);
}

}  // namespace ronda
