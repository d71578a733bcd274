#include "runtime/launch/probe_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// What a child's standard streams are to be.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void Duplicate(const UniqueFd& from, int to) { posix_spawn_file_actions_adddup2(&actions_, from.get(), to); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_ = {};
};

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command, const FileActions& actions) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], actions.get(), nullptr, argv.data(), environ);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", command.front()));
  return pid;
}

// The end of a text is what tells why a program has ended.
std::string LastLine(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : std::string(absl::StripAsciiWhitespace(lines.back()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeClient>> ProbeClient::Start(const std::vector<std::string>& command) {
  int conversation[2], errors[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, conversation) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make a socket");
  }
  UniqueFd own(conversation[0]), probes(conversation[1]);
  if (pipe2(errors, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  UniqueFd read_end(errors[0]), write_end(errors[1]);
  FileActions actions;
  actions.Duplicate(probes, STDIN_FILENO);
  actions.Duplicate(probes, STDOUT_FILENO);
  actions.Duplicate(write_end, STDERR_FILENO);
  RONDA_ASSIGN_OR_RETURN(const pid_t pid, Spawn(command, actions));
  return std::unique_ptr<ProbeClient>(new ProbeClient(pid, std::move(own), std::move(read_end)));
}

ProbeClient::ProbeClient(pid_t pid, UniqueFd conversation, UniqueFd errors)
    : pid_(pid), conversation_(std::move(conversation)), errors_(std::move(errors)) {
  fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
}

ProbeClient::~ProbeClient() {
  conversation_.Reset();
  // A probe ends with its input, also where it is what the command has started. The command itself may hang.
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ProbeClient::Ask(absl::string_view question) {
  const std::string line = absl::StrCat(question, "\n");
  if (send(conversation_.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) shutdown(conversation_.get(), SHUT_WR);
}

absl::StatusOr<std::string> ProbeClient::ReadLine(absl::Time deadline) {
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const absl::Duration left = std::min(deadline - absl::Now(), absl::Hours(1));
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("it does not answer");
    pollfd ready = {.fd = conversation_.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) continue;
    std::array<char, 4096> buffer;
    const ssize_t count = recv(conversation_.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Ended();
    unread_.append(buffer.data(), static_cast<size_t>(count));
  }
}

absl::Status ProbeClient::Ended() {
  std::array<char, 4096> buffer;
  std::string text;
  for (ssize_t count = 1; count > 0;) {
    count = read(errors_.get(), buffer.data(), buffer.size());
    if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  }
  const std::string reason = LastLine(text);
  return absl::UnavailableError(reason.empty() ? "it has ended without a word" : reason);
}

}  // namespace ronda
