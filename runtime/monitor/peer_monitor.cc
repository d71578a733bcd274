#include "runtime/monitor/peer_monitor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

constexpr int kPollingIntervalMs = 200;

int PidFdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool IsReadable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerMonitor>> PeerMonitor::Start(absl::Span<const Watched> peers, OnEnd on_end,
                                                                Options options) {
  const int stop_event = eventfd(0, EFD_CLOEXEC);
  if (stop_event < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot watch the other ranks: eventfd: ", std::strerror(errno)));
  }
  std::vector<Entry> entries;
  for (const Watched& peer : peers) {
    const int pidfd = options.method == Method::kPidFd ? PidFdOpen(peer.process.pid) : -1;
    entries.push_back({.peer = peer, .pidfd = pidfd});
  }
  return std::unique_ptr<PeerMonitor>(new PeerMonitor(std::move(entries), stop_event, std::move(on_end)));
}

PeerMonitor::PeerMonitor(std::vector<Entry> entries, int stop_event, OnEnd on_end)
    : on_end_(std::move(on_end)),
      stop_event_(stop_event),
      entries_(std::move(entries)),
      fds_(entries_.size() + 1),
      thread_([this] { Run(); }) {}

PeerMonitor::~PeerMonitor() {
  const uint64_t one = 1;
  // An eventfd takes this write whatever its state.
  [[maybe_unused]] const ssize_t written = write(stop_event_, &one, sizeof(one));
  thread_.join();
  for (const Entry& entry : entries_) {
    if (entry.pidfd >= 0) close(entry.pidfd);
  }
  close(stop_event_);
}

void PeerMonitor::Run() {
  // A pidfd opened after the process had ended may be that of a later process with its pid: hence this look at the
  // start times first. From then on the pidfd's word is good.
  for (Entry& entry : entries_) {
    if (entry.pidfd >= 0 && !IsAlive(entry.peer.process)) close(std::exchange(entry.pidfd, -1));
  }
  do {
    const auto has_ended = [](const Entry& entry) {
      return entry.pidfd >= 0 ? IsReadable(entry.pidfd) : !IsAlive(entry.peer.process);
    };
    const auto ended = std::stable_partition(entries_.begin(), entries_.end(), std::not_fn(has_ended));
    for (auto entry = ended; entry != entries_.end(); ++entry) {
      if (entry->pidfd >= 0) close(entry->pidfd);
      on_end_(entry->peer.rank);
    }
    entries_.erase(ended, entries_.end());
  } while (Sleep());
}

bool PeerMonitor::Sleep() {
  fds_.clear();
  fds_.push_back({.fd = stop_event_, .events = POLLIN, .revents = 0});
  int timeout_ms = -1;
  for (const Entry& entry : entries_) {
    if (entry.pidfd >= 0) fds_.push_back({.fd = entry.pidfd, .events = POLLIN, .revents = 0});
    if (entry.pidfd < 0) timeout_ms = kPollingIntervalMs;
  }
  poll(fds_.data(), fds_.size(), timeout_ms);
  return (fds_[0].revents & POLLIN) == 0;
}

}  // namespace ronda
