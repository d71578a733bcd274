// SPDX-License-Identifier: Apache-2.0

// The processes of this host's ranks, and a monitor that watches them.
#ifndef RONDA_RUNTIME_MONITOR_PEER_MONITOR_H_
#define RONDA_RUNTIME_MONITOR_PEER_MONITOR_H_

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/base/wake_pipe.h"

namespace ronda {

// A process of this host. The start time (clock ticks since boot) distinguishes it from a later process with the same
// pid, and is 0 if the host has no /proc.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;
};

// What /proc says about a process.
struct ProcessStat {
  char state = 0;  // see proc(5): R is running or runnable, S and D sleep, T and t are stopped, Z is a zombie
  pid_t parent = 0;
  uint64_t start_time = 0;
};
// Reads the facts about the process `pid` from /proc. Returns nullopt if the process does not exist, or if the file
// cannot be read. Allocates no memory, because peers must also be watched after memory has run out.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// Returns the calling process.
ProcessId ThisProcess();

// Returns whether `process` is still running. A process that has ended is not running, even if its parent has not
// reaped it yet. If /proc cannot be read, for instance because this process has no free descriptor, returns whether any
// process has the pid.
bool IsAlive(const ProcessId& process);

// The failure text on the other ranks if a rank's program returned from main() or called exit().
inline constexpr char kExitWithoutShutdown[] = "has ended without ronda_shutdown()";

// The failure text on the other ranks if a rank has left the job, but its process may still be running.
inline constexpr char kLeftEarly[] = "has left before the job ended";

// Watches the processes of other ranks on this host, and reports within milliseconds when one exits for any reason. Its
// thread sleeps in poll() on one pidfd per process, so it uses no CPU time meanwhile, and does not slow down
// collectives.
//
// If the program closes descriptors that it did not open (closefrom), the monitor polls /proc instead.
//
// Thread-safe. The destructor stops the thread, and no callback runs afterwards.
class PeerMonitor {
 public:
  struct Watched {
    RankId rank;
    ProcessId process;
  };
  // Called on the monitor's thread once for each process that has exited, even if it exited before Start().
  using OnEnd = std::function<void(RankId rank)>;

  enum class Method { kPidFd, kPolling };
  struct Options {
    // kPolling polls /proc five times per second. With kPidFd, the monitor also polls each process for which
    // pidfd_open() fails (old kernels, sandboxes).
    Method method = Method::kPidFd;
  };

  // Errors: RESOURCE_EXHAUSTED if the process is out of file descriptors.
  static absl::StatusOr<std::unique_ptr<PeerMonitor>> Start(absl::Span<const Watched> peers, OnEnd on_end,
                                                            Options options);
  static absl::StatusOr<std::unique_ptr<PeerMonitor>> Start(absl::Span<const Watched> peers, OnEnd on_end) {
    return Start(peers, std::move(on_end), Options{});
  }

  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

 private:
  struct Entry {
    Watched peer;
    int pidfd;  // -1: polled
  };

  PeerMonitor(std::vector<Entry> entries, WakePipe stop, OnEnd on_end);
  void Run();
  bool HasEnded(const Entry& entry) const;
  // The wake pipe shows whether the program has closed all descriptors. If so, the pidfds' numbers may now belong to
  // the program's files. Then the monitor does not close the pidfds, and polls the processes instead.
  void ClosePidFd(Entry& entry) const;
  void ForgetLostDescriptors();
  // Sleeps until a process may have exited. Returns false if the monitor must stop.
  bool Sleep();

  const OnEnd on_end_;
  const WakePipe stop_;
  std::atomic<bool> is_stopping_{false};
  std::vector<Entry> entries_;  // processes that have not exited; only the thread uses it once it runs
  std::vector<pollfd> fds_;     // only the thread uses it; preallocated, so that it needs no memory later
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_PEER_MONITOR_H_
