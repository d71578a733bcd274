#include "bench/cuda/thread_times.h"

#include <dirent.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace ronda::bench {
namespace {

absl::Duration Read(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return absl::ZeroDuration();
  return absl::DurationFromTimespec(time);
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

}  // namespace

std::vector<pid_t> Threads() {
  std::vector<pid_t> threads;
  const std::unique_ptr<DIR, CloseDirectory> tasks(opendir("/proc/self/task"));
  if (tasks == nullptr) return threads;
  while (const dirent* const entry = readdir(tasks.get())) {
    pid_t thread = 0;
    if (absl::SimpleAtoi(absl::string_view(entry->d_name), &thread)) threads.push_back(thread);
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

// The kernel's number of that clock, from which the C library makes what pthread_getcpuclockid() returns: the thread's
// complement, then "a thread's, not a process'" (4) and "of what the scheduler has counted" (2).
absl::Duration CpuTimeOf(pid_t thread) {
  return Read(static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6));
}

absl::Duration CpuTimeOfThisThread() { return Read(CLOCK_THREAD_CPUTIME_ID); }

absl::Duration CpuTimeOfProcess() { return Read(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace ronda::bench
