// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"

namespace ronda::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::string CpuName() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
  }
  return "unknown";
}

double MemoryGib() {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return 0;
  return static_cast<double>(info.totalram) * info.mem_unit / (1 << 30);
}

std::string Kernel() {
  utsname names;
  return uname(&names) == 0 ? absl::StrCat(names.sysname, " ", names.release) : "unknown";
}

// The CPU times of all cores together, from the first line of /proc/stat, and the number of cores.
struct CpuTimes {
  double idle = 0;
  double all = 0;
  int cores = 0;
};

CpuTimes ReadCpuTimes(const std::string& stat) {
  constexpr size_t kIdle = 3, kIoWait = 4, kGuest = 8;  // from kGuest on, times are parts of earlier times
  CpuTimes times;
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.empty() || !absl::StartsWith(words[0], "cpu")) continue;
    if (words[0] != "cpu") ++times.cores;
    for (size_t i = 0; words[0] == "cpu" && i < kGuest && i + 1 < words.size(); ++i) {
      double ticks = 0;
      if (!absl::SimpleAtod(words[i + 1], &ticks)) continue;
      times.all += ticks;
      if (i == kIdle || i == kIoWait) times.idle += ticks;
    }
  }
  return times;
}

// Binds the calling thread. Returns false if the system refuses.
bool BindToCore(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

// Requests all cores for the calling thread. The system grants those that this process may use.
void UseAllCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

std::vector<int> OwnCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(static_cast<int>(core));
  }
  return cores;
}

// The value that two threads pass back and forth like a ball. It says which thread has the ball, or is kOver at the
// end.
enum : int { kFirst, kSecond, kOver };

constexpr int kRoundTrips = 250;  // in a batch

// The main function of the second thread: returns the ball until the value is kOver.
void Return(std::atomic<int>* ball) {
  for (;;) {
    int holder;
    while ((holder = ball->load(std::memory_order_acquire)) == kFirst) {
    }
    if (holder == kOver) return;
    ball->store(kFirst, std::memory_order_release);
  }
}

// The main function of the first thread. Returns the time of the fastest batch. A batch is so short that other programs
// leave at least one batch undisturbed. On a busy machine, fewer batches fit into the time limit.
Clock::duration Serve(std::atomic<int>* ball) {
  constexpr int kBatches = 400;
  constexpr Clock::duration kMostTime = std::chrono::milliseconds(100);
  Clock::duration fastest = Clock::duration::max();
  const Clock::time_point begin = Clock::now();
  for (int batch = 0; batch < kBatches && Clock::now() - begin < kMostTime; ++batch) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRoundTrips; ++i) {
      ball->store(kSecond, std::memory_order_release);
      while (ball->load(std::memory_order_acquire) != kFirst) {
      }
    }
    fastest = std::min(fastest, Clock::now() - start);
  }
  ball->store(kOver, std::memory_order_release);
  return fastest;
}

}  // namespace

Machine DescribeMachine() {
  return {.cpu = CpuName(),
          .cores = static_cast<int>(GrantedCores().size()),
          .memory_gib = MemoryGib(),
          .kernel = Kernel()};
}

double BusyCores(const std::string& before, const std::string& after) {
  const CpuTimes begin = ReadCpuTimes(before), end = ReadCpuTimes(after);
  const double all = end.all - begin.all;
  return all <= 0 ? 0 : end.cores * (1 - (end.idle - begin.idle) / all);
}

double BusyCoresNow() {
  constexpr absl::Duration kSample = absl::Milliseconds(100);  // ten ticks of the kernel's count
  const auto read = [] { return ReadFile("/proc/stat").value_or(""); };
  const std::string before = read();
  absl::SleepFor(kSample);
  return BusyCores(before, read());
}

double NowSeconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

std::string NowInUtc() { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", CalendarNow(), absl::UTCTimeZone()); }

const std::vector<std::string>& BindingNames() {
  static const auto* const names = new std::vector<std::string>{"launcher", "none", "core"};
  return *names;
}

std::vector<int> GrantedCores() {
  cpu_set_t before;
  const bool is_known = sched_getaffinity(0, sizeof(before), &before) == 0;
  UseAllCores();
  std::vector<int> cores = OwnCores();
  if (is_known) sched_setaffinity(0, sizeof(before), &before);
  return cores;
}

void Bind(Binding binding, int rank) {
  if (binding == Binding::kLauncher) return;
  UseAllCores();
  const std::vector<int> cores = OwnCores();
  if (binding == Binding::kNone || cores.empty()) return;
  BindToCore(cores[static_cast<size_t>(rank) % cores.size()]);
}

double CoreDistanceNanoseconds() {
  const std::vector<int> cores = GrantedCores();
  if (cores.size() < 2) return 0;
  alignas(128) std::atomic<int> ball{kFirst};
  Clock::duration fastest = Clock::duration::max();
  bool is_first_bound = false;
  bool is_second_bound = false;
  std::thread second([&] {
    is_second_bound = BindToCore(cores[1]);
    Return(&ball);
  });
  std::thread first([&] {
    is_first_bound = BindToCore(cores[0]);
    fastest = Serve(&ball);
  });
  first.join();
  second.join();
  if (!is_first_bound || !is_second_bound) return 0;
  return std::chrono::duration<double, std::nano>(fastest).count() / kRoundTrips / 2;
}

}  // namespace ronda::bench
