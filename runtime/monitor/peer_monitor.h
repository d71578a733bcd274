// The processes of this host's ranks, and the watch over them.
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

// A process of this host. The start time (clock ticks since boot) tells it from a later process with the same pid;
// it is 0 where /proc is not there to tell.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;
};

// What /proc says about a process.
struct ProcessStat {
  char state = 0;  // see proc(5): R runs or wants to, S and D sleep, T and t are stopped, Z has ended
  pid_t parent = 0;
  uint64_t start_time = 0;
};
// nullopt if there is no such process. Allocates nothing: peers are watched also where memory has run out.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// The calling process.
ProcessId ThisProcess();

// Whether `process` still runs. A process that has ended, but that its parent has not reaped yet, does not.
bool IsAlive(const ProcessId& process);

// How the process of a rank has ended whose program has returned from main() or called exit(), in the failure that the
// other ranks read.
inline constexpr char kExitWithoutShutdown[] = "has ended without ronda_shutdown()";

// How the part of a rank in the job has ended whose process may live, in the failure that the other ranks read.
inline constexpr char kLeftEarly[] = "has left before the job ended";

// Watches the processes of this host's other ranks, and reports when one ends for any reason: off the data path, within
// milliseconds, and without using the CPU meanwhile (a thread sleeps in poll() on a pidfd for each).
//
// A program that closes descriptors which are not its own (closefrom) does no harm: processes are looked up in /proc
// then.
//
// Thread-safe. The destructor stops the thread; no callback runs after it.
class PeerMonitor {
 public:
  struct Watched {
    RankId rank;
    ProcessId process;
  };
  // Called from the monitor's thread, once for each process that ended, also for one that had ended before Start.
  using OnEnd = std::function<void(RankId rank)>;

  enum class Method { kPidFd, kPolling };
  struct Options {
    // kPolling reads /proc five times a second. It also serves for processes that pidfd_open() refuses to watch (old
    // kernels, sandboxes).
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
  // If the program has closed all descriptors, which the wake-up pipe tells, its own files may have their numbers. Then
  // no pidfd is closed, and processes are polled.
  void ClosePidFd(Entry& entry) const;
  void ForgetLostDescriptors();
  // Sleeps until something may have happened; false once the monitor is to stop.
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
