// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/peer_monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ronda {

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char buffer[1024];
  const ssize_t bytes = read(fd, buffer, sizeof(buffer));
  close(fd);
  if (bytes <= 0) return std::nullopt;
  const absl::string_view text(buffer, static_cast<size_t>(bytes));
  // The command name is in parentheses, but may itself contain spaces and parentheses. So counts the fields after the
  // last parenthesis.
  const size_t name_end = text.rfind(") ");
  if (name_end == absl::string_view::npos) return std::nullopt;
  constexpr int kState = 0;       // field 3 of proc(5)
  constexpr int kParent = 1;      // field 4
  constexpr int kStartTime = 19;  // field 22
  ProcessStat stat;
  int index = 0;
  for (const absl::string_view field : absl::StrSplit(text.substr(name_end + 2), ' ')) {
    if (index == kState && !field.empty()) stat.state = field[0];
    if (index == kParent && !absl::SimpleAtoi(field, &stat.parent)) return std::nullopt;
    if (index++ != kStartTime) continue;
    if (stat.state == 0 || !absl::SimpleAtoi(field, &stat.start_time)) return std::nullopt;
    return stat;
  }
  return std::nullopt;
}

ProcessId ThisProcess() {
  const std::optional<ProcessStat> stat = ReadProcessStat(getpid());
  return {.pid = getpid(), .start_time = stat.has_value() ? stat->start_time : 0};
}

bool IsAlive(const ProcessId& process) {
  const std::optional<ProcessStat> stat = process.start_time == 0 ? std::nullopt : ReadProcessStat(process.pid);
  if (stat.has_value()) {
    return stat->start_time == process.start_time && stat->state != 'Z' && stat->state != 'X';
  }
  // This process may be unable to read the file even though the other process is running: /proc may be missing, or it
  // hides the processes of other users (hidepid), or this process has no free descriptor. Signal 0 shows whether a
  // process with this pid exists.
  return kill(process.pid, 0) == 0 || errno == EPERM;
}

namespace {

constexpr int kPollingIntervalMs = 200;
// With pidfds, the thread sleeps for at most kDescriptorIntervalMs, because the program may have closed them. Without
// them, it sleeps for at most kStopInterval.
constexpr int kDescriptorIntervalMs = 1000;
constexpr absl::Duration kStopInterval = absl::Milliseconds(20);

int PidFdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

absl::StatusOr<std::unique_ptr<PeerMonitor>> PeerMonitor::Start(absl::Span<const Watched> peers, OnEnd on_end,
                                                                Options options) {
  absl::StatusOr<WakePipe> stop = WakePipe::Create();
  if (!stop.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot watch the other ranks: ", stop.status().message()));
  }
  std::vector<Entry> entries;
  for (const Watched& peer : peers) {
    const int pidfd = options.method == Method::kPidFd ? PidFdOpen(peer.process.pid) : -1;
    entries.push_back({.peer = peer, .pidfd = pidfd});
  }
  return std::unique_ptr<PeerMonitor>(new PeerMonitor(std::move(entries), *std::move(stop), std::move(on_end)));
}

PeerMonitor::PeerMonitor(std::vector<Entry> entries, WakePipe stop, OnEnd on_end)
    : on_end_(std::move(on_end)),
      stop_(std::move(stop)),
      entries_(std::move(entries)),
      fds_(entries_.size() + 1),
      thread_([this] { Run(); }) {}

PeerMonitor::~PeerMonitor() {
  is_stopping_ = true;
  stop_.Wake();
  thread_.join();
  for (Entry& entry : entries_) ClosePidFd(entry);
}

bool PeerMonitor::HasEnded(const Entry& entry) const {
  if (entry.pidfd >= 0) {
    pollfd end = {.fd = entry.pidfd, .events = POLLIN, .revents = 0};
    const int ready = poll(&end, 1, 0);
    if (ready == 0) return false;
    if (ready == 1 && stop_.IsIntact()) return true;
  }
  return !IsAlive(entry.peer.process);
}

void PeerMonitor::ClosePidFd(Entry& entry) const {
  const int pidfd = std::exchange(entry.pidfd, -1);
  if (pidfd >= 0 && stop_.IsIntact()) close(pidfd);
}

void PeerMonitor::ForgetLostDescriptors() {
  if (stop_.IsIntact()) return;
  for (Entry& entry : entries_) entry.pidfd = -1;
}

void PeerMonitor::Run() {
  // A pidfd that was opened after the process had exited may refer to a later process with the same pid. Comparing the
  // start times once shows whether it refers to the right process.
  for (Entry& entry : entries_) {
    if (entry.pidfd >= 0 && !IsAlive(entry.peer.process)) ClosePidFd(entry);
  }
  do {
    ForgetLostDescriptors();
    const auto ended = std::stable_partition(entries_.begin(), entries_.end(),
                                             [this](const Entry& entry) { return !HasEnded(entry); });
    for (auto entry = ended; entry != entries_.end(); ++entry) {
      ClosePidFd(*entry);
      on_end_(entry->peer.rank);
    }
    entries_.erase(ended, entries_.end());
  } while (Sleep());
}

bool PeerMonitor::Sleep() {
  if (!stop_.IsIntact()) {
    absl::SleepFor(kStopInterval);
    return !is_stopping_;
  }
  fds_.clear();
  fds_.push_back({.fd = stop_.reader(), .events = POLLIN, .revents = 0});
  int timeout_ms = kDescriptorIntervalMs;
  for (const Entry& entry : entries_) {
    if (entry.pidfd >= 0) fds_.push_back({.fd = entry.pidfd, .events = POLLIN, .revents = 0});
    if (entry.pidfd < 0) timeout_ms = kPollingIntervalMs;
  }
  // If poll() fails, the thread sleeps and continues, because it must still detect the exit of a rank.
  if (poll(fds_.data(), fds_.size(), timeout_ms) < 0) absl::SleepFor(kStopInterval);
  return !is_stopping_;
}

}  // namespace ronda
