// SPDX-License-Identifier: Apache-2.0

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/collectives/collective_case.h"
#include "bench/collectives/implementation.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
#include "client/ronda.hpp"
#include "runtime/base/bytes_text.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

// The resources that all threads of this process have used.
struct Usage {
  double cpu_microseconds = 0;
  double context_switches = 0;
};

Usage UsageUntilNow() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const absl::Duration cpu = absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  return {.cpu_microseconds = absl::ToDoubleMicroseconds(cpu),
          .context_switches = static_cast<double>(usage.ru_nvcsw + usage.ru_nivcsw)};
}

struct LatencyOptions {
  JobOptions job;
  size_t bytes = 4;
  int calls = 20000;
  int rounds = 5;
  absl::Duration idle = absl::Seconds(3);
  CallPattern pattern;
};

constexpr char kDescription[] =
    "Times each call of one small allreduce, float32, blocking, in place: Ronda through the whole\n"
    "client path (submit, agree, reduce, return to the caller), its communicator alone, and peers,\n"
    "interleaved. Then measures the cost of the job while nothing is submitted.\n"
    "\n"
    "  ronda-bench latency --peer mpi\n"
    "  ronda-bench latency --peer mpi --names 10 --other-every 100\n"
    "  RONDA_LOCK_AFTER=0 ronda-bench latency --peer mpi     (every call is negotiated)";

// Times `calls` calls of `call` on this rank. Returns the microseconds that each call took.
std::vector<double> TimeCalls(absl::FunctionRef<void()> call, int calls) {
  std::vector<double> microseconds;
  microseconds.reserve(static_cast<size_t>(calls));
  auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    call();
    const auto after = std::chrono::steady_clock::now();
    microseconds.push_back(std::chrono::duration<double, std::micro>(after - before).count());
    before = after;
  }
  return microseconds;
}

// An implementation and the times of all its calls.
struct TimedImplementation {
  std::unique_ptr<Implementation> implementation;
  std::vector<double> microseconds = {};
  int64_t wrong = 0;
};

// Times the calls, then measures an idle job. Thread-compatible.
class LatencyRun {
 public:
  LatencyRun(const LatencyOptions& options, Rank* rank)
      : options_(options),
        rank_(*rank),
        shape_{.count = std::max<size_t>(1, options.bytes / sizeof(float)), .ranks = rank->group.size()},
        data_(shape_.bytes()) {}

  absl::Status Run() {
    RONDA_RETURN_IF_ERROR(Prepare());
    for (int round = 0; round < options_.rounds; ++round) {
      rank_.output.Progress(static_cast<double>(round) / options_.rounds, "calls");
      for (TimedImplementation& timed : implementations_) TimeRound(&timed);
    }
    for (TimedImplementation& timed : implementations_) Check(&timed);
    Report();
    MeasureIdle();
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare() {
    implementations_.push_back({.implementation = MakeClient(options_.pattern)});
    TimedImplementation alone;
    RONDA_ASSIGN_OR_RETURN(alone.implementation, ConnectCommunicator(rank_.launched, {.suffix = "-communicator"}));
    implementations_.push_back(std::move(alone));
    for (const std::unique_ptr<Peer>& peer : rank_.peers) {
      implementations_.push_back({.implementation = MakePeer(peer.get(), &rank_.group)});
    }
    for (const TimedImplementation& timed : implementations_) {
      RONDA_RETURN_IF_ERROR(timed.implementation->Prepare(shape_, {data_.data(), data_.data()}).status());
    }
    return absl::OkStatus();
  }

  void TimeRound(TimedImplementation* timed) {
    const int warm_up = std::max(100, 6 * options_.pattern.names);  // until the schedule is locked
    Implementation* const implementation = timed->implementation.get();
    const auto call = [implementation] { implementation->Run(); };
    std::fill_n(static_cast<float*>(data_.data()), shape_.count, 0.0f);
    rank_.group.Barrier();
    TimeCalls(call, warm_up);
    const std::vector<double> times = TimeCalls(call, std::max(1, options_.calls / options_.rounds));
    timed->microseconds.insert(timed->microseconds.end(), times.begin(), times.end());
  }

  void Check(TimedImplementation* timed) {
    FillInput(shape_, rank_.group.rank(), data_.data());
    timed->wrong = rank_.group.Sum(CountWrong(shape_, rank_.group.rank(), timed->implementation->Run()));
  }

  void Report() {
    const std::string group = "us, of rank 0";
    const Table table({{.title = "by", .width = 12, .align = Table::Column::Align::kLeft, .field = "contestant"},
                       {.title = "calls", .width = 8, .field = "calls"},
                       {.title = "min", .width = 8, .group = group, .field = "min_us"},
                       {.title = "median", .width = 8, .group = group, .field = "median_us"},
                       {.title = "p90", .width = 8, .group = group, .field = "p90_us"},
                       {.title = "p99", .width = 8, .group = group, .field = "p99_us"},
                       {.title = "max", .width = 9, .group = group, .field = "max_us"},
                       {.title = "#wrong", .field = "wrong"}});
    rank_.output.Print(
        absl::StrFormat("# allreduce of %s, blocking, call by call\n%s", BytesText(shape_.bytes()), table.Header()));
    for (const TimedImplementation& timed : implementations_) {
      ResultRow row = RowOf(timed);
      rank_.output.Print(table.RowOf(row));
      rank_.results.Add(std::move(row));
    }
    rank_.output.Print("# client, us\n" + HistogramOf(implementations_.front()).Text());
  }

  static Histogram HistogramOf(const TimedImplementation& timed) {
    Histogram histogram;
    for (const double value : timed.microseconds) histogram.Add(std::max(value, 1e-3));
    return histogram;
  }

  ResultRow RowOf(const TimedImplementation& timed) const {
    std::vector<double> begins;
    std::vector<double> counts;
    for (const Histogram::Bin& bin : HistogramOf(timed).Bins()) {
      begins.push_back(bin.begin);
      counts.push_back(static_cast<double>(bin.count));
    }
    const Summary times = Summarize(timed.microseconds);
    return {{"measure", "calls"},
            {"contestant", timed.implementation->name()},
            {"kind", timed.implementation->kind() == Implementation::Kind::kPeer ? "peer" : "ronda"},
            {"ranks", int64_t{shape_.ranks}},
            {"bytes", static_cast<int64_t>(shape_.bytes())},
            {"calls", static_cast<int64_t>(times.count)},
            {"min_us", times.min},
            {"median_us", times.median},
            {"p90_us", times.p90},
            {"p99_us", times.p99},
            {"max_us", times.max},
            {"wrong", timed.wrong},
            {"histogram_begin_us", begins},
            {"histogram_count", counts}};
  }

  // Measures the CPU time of the whole process, because a peer may have threads that poll while the job is idle.
  void MeasureIdle() {
    if (options_.idle == absl::ZeroDuration()) return;
    rank_.output.Progress(1, "idling");
    rank_.group.Barrier();
    constexpr absl::Duration kSettling = absl::Milliseconds(100);  // until every thread sleeps
    absl::SleepFor(kSettling);
    const Usage before = UsageUntilNow();
    absl::SleepFor(options_.idle);
    const Usage after = UsageUntilNow();
    const double cpu = rank_.group.Max(after.cpu_microseconds - before.cpu_microseconds);
    const double switches = rank_.group.Max(after.context_switches - before.context_switches);
    const double seconds = absl::ToDoubleSeconds(options_.idle);
    rank_.output.Print(
        absl::StrFormat("# idle for %g s, all threads of the busiest rank: %.0f us of CPU, %.0f context switches\n",
                        seconds, cpu, switches));
    rank_.results.Add({{"measure", "idle"},
                       {"ranks", int64_t{shape_.ranks}},
                       {"seconds", seconds},
                       {"cpu_us", cpu},
                       {"context_switches", switches}});
  }

  const LatencyOptions options_;
  Rank& rank_;
  const CollectiveCase shape_;
  const AlignedBytes data_;
  std::vector<TimedImplementation> implementations_;
};

absl::Status RunOnRank(const LatencyOptions& options, Rank& rank) {
  ronda::init();
  RONDA_RETURN_IF_ERROR(LatencyRun(options, &rank).Run());
  ronda::shutdown();
  return absl::OkStatus();
}

int Run(const std::vector<std::string>& words) {
  LatencyOptions options;
  Flags flags("latency", kDescription);
  AddJobFlags(&flags, &options.job);
  flags.Add({.names = {"--bytes"}, .value = "SIZE", .help = "Of the tensor (4)."}, Size(&options.bytes));
  flags.Add({.names = {"--calls"}, .value = "N", .help = "Of each implementation, after those that warm up (20000)."},
            Integer(&options.calls, {.min = 1}));
  flags.Add({.names = {"--rounds"}, .value = "N", .help = "Rounds of interleaved calls (5)."},
            Integer(&options.rounds, {.min = 1, .max = 10000}));
  flags.Add({.names = {"--names"}, .value = "N", .help = "The client's calls have N names in turn (1)."},
            Integer(&options.pattern.names, {.min = 1, .max = 100000}));
  flags.Add({.names = {"--other-every"},
             .value = "N",
             .help = "The client's N-th, 2N-th, ... call has another name, as that of\na metric (0: none)."},
            Integer(&options.pattern.other_every, {.min = 0}));
  flags.Add({.names = {"--idle"}, .value = "TIME", .help = "Idle time at the end (3s); 0: none."},
            Duration(&options.idle));
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  return RunJob({.command = "latency", .words = words, .options = options.job},
                [&](Rank& rank) { return RunOnRank(options, rank); });
}

}  // namespace

Command LatencyCommand() {
  return {.name = "latency", .summary = "one small tensor through the whole client path; idle cost", .run = Run};
}

}  // namespace ronda::bench
