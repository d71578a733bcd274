// SPDX-License-Identifier: Apache-2.0

// simulate runs scenarios of elastic jobs with faults, or of the control plane over TCP. Each scenario runs in virtual
// time, in its own process.
//
//   simulate --scenarios=1000          seeds 1 to 1000
//   simulate --seconds=60 --first=7    seeds from 7, for a minute
//   simulate --seed=42                 one scenario, with its events
//   simulate --control --seconds=60    the control plane
//   simulate --corrupted=100           with a wrong bit in the 100th message of tensors, which the checks must find
//
// If a guarantee is violated, simulate prints it with the seed, and the exit code is 1.
#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/logging.h"
#include "tests/simulation/control_job.h"
#include "tests/simulation/job.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {
namespace {

// The limit in real time for a scenario. A scenario usually takes a second.
constexpr unsigned kWatchdogSeconds = 120;
constexpr int kViolatedExit = 2;

struct Flags {
  uint64_t first = 1;
  uint64_t scenarios = UINT64_MAX;
  double seconds = 1e9;
  int jobs = 1;
  bool has_seed = false;
  bool is_control = false;
  uint64_t corrupted = 0;
};

// The results of a worker process, in memory that it shares with the processes of its scenarios.
struct Report {
  Counts counts;
  ControlCounts control;
  uint64_t trace = 0;     // of the newest scenario
  char broken[512] = {};  // the violated guarantee
  uint64_t failed = 0;
};

template <typename AnyJob, typename AnyScenario, typename AnyCounts>
[[noreturn]] void RunScenario(const AnyScenario& scenario, AnyCounts* counts, Report* report) {
  alarm(kWatchdogSeconds);
  signal(SIGPIPE, SIG_IGN);
  const auto tell = [report](const std::string& what) {
    std::strncpy(report->broken, what.c_str(), sizeof(report->broken) - 1);
  };
  VirtualWorld& world = VirtualWorld::Get();
  world.Enter({.seed = scenario.seed, .tick = scenario.tick, .report = tell});
  const auto violate = [&](const std::string& what) {
    tell(what);
    _exit(kViolatedExit);
  };
  AnyJob job(scenario, counts, violate);
  job.Run();
  ++counts->scenarios;
  report->trace = world.trace();
  _exit(0);  // other processes of the world may have threads that never run again
}

std::string DescribeStatus(int status) {
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGALRM ? "takes for ever" : absl::StrCat("ended by signal ", WTERMSIG(status));
  }
  return absl::StrCat("exit code ", WEXITSTATUS(status));
}

template <typename AnyJob, typename AnyScenario, typename AnyCounts>
void RunAndRecord(const AnyScenario& scenario, AnyCounts* counts, Report* report) {
  std::memset(report->broken, 0, sizeof(report->broken));
  const pid_t child = fork();
  if (child == 0) RunScenario<AnyJob>(scenario, counts, report);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    std::perror("simulate");
    std::exit(1);
  }
  if (status == 0) return;
  ++report->failed;
  std::printf("FAILED %s\n  %s: %s\n", Describe(scenario).c_str(), DescribeStatus(status).c_str(), report->broken);
  std::fflush(stdout);
}

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Switching between a scenario's threads, of which only one runs at a time, is faster on one core.
void StayOnCore(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof(cores), &cores);
}

void Work(const Flags& flags, int worker, Report* report) {
  StayOnCore(worker);
  const double end = Seconds() + flags.seconds;
  for (uint64_t i = static_cast<uint64_t>(worker); i < flags.scenarios && Seconds() < end;
       i += static_cast<uint64_t>(flags.jobs)) {
    if (flags.is_control) {
      RunAndRecord<ControlJob>(MakeControlScenario(flags.first + i), &report->control, report);
      continue;
    }
    Scenario scenario = MakeScenario(flags.first + i);
    scenario.corrupted = flags.corrupted;
    RunAndRecord<Job>(scenario, &report->counts, report);
  }
}

// Prints the sums of the workers' counts. `names` names all counts except those of faults.
template <typename AnyCounts, typename Names>
void PrintSums(const std::vector<AnyCounts>& counts, const Names& names, const char* (*name_of_fault)(int)) {
  const auto line = [&](const std::string& name, const auto& count_of) {
    uint64_t sum = 0;
    for (const AnyCounts& each : counts) sum += count_of(each);
    std::printf("%12llu  %s\n", static_cast<unsigned long long>(sum), name.c_str());
  };
  for (const auto& each : names) line(each.name, [&](const AnyCounts& of) { return of.*each.count; });
  for (size_t i = 0; i < counts.front().faults.size(); ++i) {
    line(absl::StrCat("fault: ", name_of_fault(static_cast<int>(i))),
         [i](const AnyCounts& of) { return of.faults[i]; });
  }
}

// Prints the results. Returns whether all guarantees held.
bool Conclude(const Flags& flags, const Report* reports) {
  std::vector<Counts> counts;
  std::vector<ControlCounts> control;
  uint64_t passed = 0, failed = 0;
  for (int worker = 0; worker < flags.jobs; ++worker) {
    counts.push_back(reports[worker].counts);
    control.push_back(reports[worker].control);
    passed += counts.back().scenarios + control.back().scenarios;
    failed += reports[worker].failed;
  }
  if (flags.is_control) {
    PrintSums(control, kControlCountNames, [](int kind) { return kControlFaultNames[kind]; });
  } else {
    PrintSums(counts, kCountNames, [](int kind) { return Name(static_cast<Fault::Kind>(kind)); });
  }
  if (flags.has_seed) std::printf("%16llx  trace\n", static_cast<unsigned long long>(reports[0].trace));
  std::printf("%llu scenarios passed, %llu failed\n", static_cast<unsigned long long>(passed),
              static_cast<unsigned long long>(failed));
  return failed == 0;
}

bool ReadFlag(absl::string_view text, Flags* flags) {
  if (absl::ConsumePrefix(&text, "--seed=")) {
    flags->has_seed = true;
    flags->scenarios = 1;
    return absl::SimpleAtoi(text, &flags->first);
  }
  if (text == "--control") return flags->is_control = true;
  if (absl::ConsumePrefix(&text, "--first=")) return absl::SimpleAtoi(text, &flags->first);
  if (absl::ConsumePrefix(&text, "--scenarios=")) return absl::SimpleAtoi(text, &flags->scenarios);
  if (absl::ConsumePrefix(&text, "--seconds=")) return absl::SimpleAtod(text, &flags->seconds);
  if (absl::ConsumePrefix(&text, "--corrupted=")) return absl::SimpleAtoi(text, &flags->corrupted);
  if (absl::ConsumePrefix(&text, "--jobs=")) return absl::SimpleAtoi(text, &flags->jobs) && flags->jobs > 0;
  return false;
}

int Main(int argc, char** argv) {
  // The order in hash tables depends on addresses, so addresses must be the same in every run.
  if (const int was = personality(0xffffffff); was >= 0 && (was & ADDR_NO_RANDOMIZE) == 0) {
    if (personality(static_cast<unsigned>(was) | ADDR_NO_RANDOMIZE) >= 0) execv("/proc/self/exe", argv);
  }
  Flags flags;
  flags.jobs = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  for (int i = 1; i < argc; ++i) {
    if (ReadFlag(argv[i], &flags)) continue;
    std::fprintf(stderr,
                 "simulate: %s is none of --seed=N, --first=N, --scenarios=N, --seconds=S, --jobs=N, --control, "
                 "--corrupted=N\n",
                 argv[i]);
    return 2;
  }
  if (flags.has_seed) flags.jobs = 1;
  SetLogLevel(flags.has_seed ? LogLevel::kInfo : LogLevel::kOff);
  const size_t bytes = sizeof(Report) * static_cast<size_t>(flags.jobs);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const reports = static_cast<Report*>(memory);
  for (int worker = 0; worker < flags.jobs; ++worker) new (&reports[worker]) Report();
  for (int worker = 0; worker < flags.jobs; ++worker) {
    if (fork() == 0) {
      Work(flags, worker, &reports[worker]);
      _exit(0);
    }
  }
  while (wait(nullptr) > 0) {
  }
  return Conclude(flags, reports) ? 0 : 1;
}

}  // namespace
}  // namespace ronda::simulation

int main(int argc, char** argv) { return ronda::simulation::Main(argc, argv); }
