// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/preflight/preflight.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "programs/options/hosts.h"
#include "programs/options/local_host.h"
#include "programs/rondarun/plan/ssh_plan.h"
#include "programs/rondarun/preflight/host_probe.h"
#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Sets up the standard streams of a child process.
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

// Returns the last line of `text`, where failing programs give the reason.
std::string LastLine(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : std::string(absl::StripAsciiWhitespace(lines.back()));
}

// Includes the time for a login and a start over a slow network.
constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(5);
// How long a probe may take to report whether it could connect to a host. Must be longer than the probe's own limit for
// connecting (host_probe.cc).
constexpr absl::Duration kConnectTimeout = absl::Seconds(3);

// Returns the command line of a probe: the variables that ranks on all hosts would get, rondarun, "--probe", and any
// interfaces.
std::vector<std::string> ProbeWords(const std::string& program, const RemoteOptions& remote) {
  std::vector<std::string> words = {"env"};
  for (const char* name : {"RONDA_MPI_PLUGIN", "RONDA_HOSTS_PLUGIN"}) {
    const std::optional<std::string> value = ProcessEnvironment()(name);
    if (value.has_value()) words.push_back(absl::StrCat(name, "=", *value));
  }
  words.insert(words.end(), {program, kProbeWord});
  words.insert(words.end(), remote.network_interfaces.begin(), remote.network_interfaces.end());
  return words;
}

// A host, and the probe that answers questions about it.
struct Asked {
  ProbedHost host;
  std::unique_ptr<ProbeClient> probe;  // null if host.status is not OK

  // Ends the probe after the error `status`, so that it is asked no more questions.
  void GiveUp(absl::Status status) {
    host.status = std::move(status);
    probe.reset();
  }
};

absl::Status ReadFacts(ProbeClient* probe, absl::Time deadline, HostFacts* facts) {
  for (;;) {
    RONDA_ASSIGN_OR_RETURN(const std::string line, probe->ReadLine(deadline));
    if (line == ".") return absl::OkStatus();
    ParseFact(line, facts);
  }
}

// Compares the host's clock with this host's clock. The other host read its clock at some moment between the question
// and the answer.
absl::Status CompareClocks(ProbeClient* probe, ProbedHost* host) {
  const absl::Time asked = CalendarNow();
  const absl::Time begin = SteadyNow();
  probe->Ask("clock");
  RONDA_ASSIGN_OR_RETURN(const std::string answer, probe->ReadLine(begin + kAnswerTimeout));
  const absl::Duration half = (SteadyNow() - begin) / 2;
  int64_t nanoseconds = 0;
  if (!absl::SimpleAtoi(answer, &nanoseconds)) return absl::UnavailableError(absl::StrCat("it answers ", answer));
  host->clock_skew = absl::FromUnixNanos(nanoseconds) - (asked + half);
  host->clock_precision = half;
  return absl::OkStatus();
}

bool CanBeReached(const Asked& asked) { return asked.probe != nullptr && asked.host.facts.contains(fact::kPort); }

// Returns the hosts to which `from` should try to connect.
std::vector<const Asked*> TargetsOf(const Asked& from, const std::vector<Asked>& all) {
  std::vector<const Asked*> targets;
  if (!CanBeReached(from)) return targets;
  for (const Asked& to : all) {
    if (&to != &from && CanBeReached(to)) targets.push_back(&to);
  }
  return targets;
}

void AskForConnections(const Asked& from, const std::vector<const Asked*>& targets) {
  for (const Asked* to : targets) {
    from.probe->Ask(
        absl::StrCat("connect ", FactOr(to->host.facts, fact::kAddress), " ", FactOr(to->host.facts, fact::kPort)));
  }
}

void ReadConnections(const std::vector<const Asked*>& targets, Asked* from) {
  for (const Asked* to : targets) {
    const absl::StatusOr<std::string> answer = from->probe->ReadLine(SteadyNow() + kConnectTimeout);
    if (!answer.ok()) return from->GiveUp(answer.status());
    if (*answer == "ok") continue;
    from->host.unreached.push_back(
        {.host = absl::StrCat(to->host.host, " (", FactOr(to->host.facts, fact::kAddress), ")"), .reason = *answer});
  }
}

// All probes try to connect at the same time, and each also answers the other probes meanwhile.
void TryConnections(std::vector<Asked>* all) {
  std::vector<std::vector<const Asked*>> targets;
  for (const Asked& from : *all) targets.push_back(TargetsOf(from, *all));
  for (size_t i = 0; i < all->size(); ++i) AskForConnections((*all)[i], targets[i]);
  for (size_t i = 0; i < all->size(); ++i) ReadConnections(targets[i], &(*all)[i]);
}

void LearnAbout(absl::Time deadline, Asked* asked) {
  if (asked->probe == nullptr) return;
  absl::Status status = ReadFacts(asked->probe.get(), deadline, &asked->host.facts);
  if (status.ok()) status = CompareClocks(asked->probe.get(), &asked->host);
  if (!status.ok()) asked->GiveUp(std::move(status));
}

Asked StartAsking(const HostSlots& host, const std::vector<std::string>& command) {
  Asked asked;
  asked.host.host = host.host;
  asked.host.slots = host.slots;
  auto probe = ProbeClient::Start(command);
  asked.host.status = probe.status();
  if (probe.ok()) asked.probe = *std::move(probe);
  return asked;
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
  // A probe ends when its input ends, even if ssh is in between. The command that started the probe may hang, so kill
  // it.
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
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("it does not answer");
    pollfd ready = {.fd = conversation_.get(), .events = POLLIN, .revents = 0};
    RONDA_ASSIGN_OR_RETURN(const int ready_count, PollDescriptors({&ready, 1}, left));
    if (ready_count == 0) continue;
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

PreflightReport CheckHosts(const LaunchOptions& options, const std::string& program,
                           const std::vector<std::string>& own) {
  std::vector<HostSlots> hosts = options.hosts;
  if (hosts.empty()) hosts.push_back({.host = "localhost", .slots = options.rank_count});
  std::vector<Asked> all;
  const std::vector<std::string> probe = ProbeWords(program, options.remote);
  for (const HostSlots& host : hosts) {
    const bool is_here = IsThisHost(host.host, own);
    all.push_back(StartAsking(host, is_here ? probe : RemoteCommand(options.remote, host.host, probe)));
  }
  const absl::Time deadline = SteadyNow() + kStartTimeout;
  for (Asked& asked : all) LearnAbout(deadline, &asked);
  TryConnections(&all);
  std::vector<ProbedHost> probed;
  for (Asked& asked : all) probed.push_back(std::move(asked.host));
  // Elastic jobs do not need MPI, because agents start their ranks.
  const bool needs_no_mpi = options.launcher == LaunchOptions::Launcher::kSsh || options.elastic.has_value();
  return MakePreflightReport(probed, needs_no_mpi ? Starters::kSsh : Starters::kMpirunOrSsh);
}

int RunPreflight(const LaunchOptions& options) {
  LaunchOptions asked = options;
  // If no option specifies interfaces, this variable may specify those that ranks use.
  const std::optional<std::string> interfaces = ProcessEnvironment()("RONDA_NETWORK_INTERFACE");
  if (interfaces.has_value() && asked.remote.network_interfaces.empty()) {
    asked.remote.network_interfaces = absl::StrSplit(*interfaces, ',', absl::SkipEmpty());
  }
  const PreflightReport report = CheckHosts(asked, ProgramPath(), OwnAddresses());
  fputs(report.text.c_str(), stdout);
  return fflush(stdout) == 0 && report.problems.empty() ? 0 : 1;
}

}  // namespace ronda
