// SPDX-License-Identifier: Apache-2.0

// The processes of this host's ranks, and the thread that watches them.
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
// pid. It is 0 if there is no /proc.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;
};

// The facts that /proc has about a process.
struct ProcessStat {
  char state = 0;  // see proc(5): R runs or wants to, S and D sleep, T and t are stopped, Z has ended
  pid_t parent = 0;
  uint64_t start_time = 0;
};
// nullopt if there is no such process. Allocates nothing, because peers are also watched when memory has run out.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// The calling process.
ProcessId ThisProcess();

// Whether `process` still runs. A process that has ended does not, even if its parent has not reaped it yet.
bool IsAlive(const ProcessId& process);

// The other ranks' failure text for a rank whose program returned from main() or called exit().
inline constexpr char kExitWithoutShutdown[] = "has ended without ronda_shutdown()";

// The other ranks' failure text for a rank that left the job, but whose process may still live.
inline constexpr char kLeftEarly[] = "has left before the job ended";

// Watches the processes of this host's other ranks, and reports within milliseconds when one ends for any reason. It
// works off the data path and uses no CPU while it waits: its thread sleeps in poll() on one pidfd per process.
//
// If the program closes descriptors that are not its own (closefrom), the monitor looks the processes up in /proc
// instead.
//
// Thread-safe. The destructor stops the thread; no callback runs after it.
class PeerMonitor {
 public:
  struct Watched {
    RankId rank;
    ProcessId process;
  };
  // The monitor's thread calls this once for each process that has ended, including processes that had ended before
  // Start.
  using OnEnd = std::function<void(RankId rank)>;

  enum class Method { kPidFd, kPolling };
  struct Options {
    // kPolling reads /proc five times per second. The monitor also uses it for processes that pidfd_open() refuses to
    // watch (old kernels, sandboxes).
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
  // The wake-up pipe shows whether the program has closed all descriptors. If so, the program's own files may have the
  // old numbers. Then no pidfd is closed, and processes are polled.
  void ClosePidFd(Entry& entry) const;
  void ForgetLostDescriptors();
  // Sleeps until something may have happened. Returns false once the monitor is to stop.
  bool Sleep();

  const OnEnd on_end_;
  const WakePipe stop_;
  std::atomic<bool> is_stopping_{false};
  std::vector<Entry> entries_;  // of processes that have not ended; the thread's own once it runs
  std::vector<pollfd> fds_;     // the thread's own; made with room for all, so that it needs no memory later
  std::thread thread_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_PEER_MONITOR_H_
