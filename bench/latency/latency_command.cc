#include "bench/latency/latency_command.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/arguments.h"
#include "bench/collectives/contestant.h"
#include "bench/collectives/elements.h"
#include "bench/job.h"
#include "bench/latency/histogram.h"
#include "bench/latency/idle_cost.h"
#include "bench/statistics.h"
#include "bench/table.h"
#include "client/ronda.hpp"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

struct LatencyOptions {
  JobOptions job;
  size_t bytes = 4;
  int calls = 20000;
  int rounds = 5;
  absl::Duration idle = absl::Seconds(3);
};

constexpr char kDescription[] =
    "Times each call of one small allreduce, float32, blocking, in place: Ronda through the whole\n"
    "client path (submit, agree, reduce, return to the caller), its communicator alone, and peers,\n"
    "in turns. Then measures what the job costs while nothing is submitted.\n"
    "\n"
    "  ronda-bench latency --peer mpi";

// What each of `calls` calls took on this rank, us.
std::vector<double> TimeCalls(const std::function<void()>& call, int calls) {
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

// A contestant, and what all of its calls took.
struct Entrant {
  std::unique_ptr<Contestant> contestant;
  std::vector<double> microseconds = {};
  int64_t wrong = 0;
};

// Thread-compatible.
class LatencyRun {
 public:
  LatencyRun(const LatencyOptions& options, Rank* rank)
      : options_(options),
        rank_(*rank),
        shape_{.count = std::max<size_t>(1, options.bytes / sizeof(float)), .ranks = rank->team.size()},
        data_(shape_.bytes()) {}

  absl::Status Run() {
    RONDA_RETURN_IF_ERROR(Enter());
    for (int round = 0; round < options_.rounds; ++round) {
      rank_.output.Progress(static_cast<double>(round) / options_.rounds, "calls");
      for (Entrant& entrant : entrants_) TimeRound(&entrant);
    }
    for (Entrant& entrant : entrants_) Check(&entrant);
    Report();
    MeasureIdle();
    return absl::OkStatus();
  }

 private:
  absl::Status Enter() {
    entrants_.push_back({.contestant = MakeClientContestant()});
    Entrant alone;
    RONDA_ASSIGN_OR_RETURN(alone.contestant, ConnectCommunicatorContestant(rank_.place, {.suffix = "-communicator"}));
    entrants_.push_back(std::move(alone));
    for (const std::unique_ptr<Peer>& peer : rank_.peers) {
      entrants_.push_back({.contestant = MakePeerContestant(peer.get(), &rank_.team)});
    }
    for (const Entrant& entrant : entrants_) {
      RONDA_RETURN_IF_ERROR(entrant.contestant->Prepare(shape_, {data_.data(), data_.data()}).status());
    }
    return absl::OkStatus();
  }

  void TimeRound(Entrant* entrant) {
    constexpr int kWarmUp = 100;
    Contestant* const contestant = entrant->contestant.get();
    const auto call = [contestant] { contestant->Run(); };
    std::fill_n(static_cast<float*>(data_.data()), shape_.count, 0.0f);
    rank_.team.Barrier();
    TimeCalls(call, kWarmUp);
    const std::vector<double> times = TimeCalls(call, std::max(1, options_.calls / options_.rounds));
    entrant->microseconds.insert(entrant->microseconds.end(), times.begin(), times.end());
  }

  void Check(Entrant* entrant) {
    FillInput(shape_, rank_.team.rank(), data_.data());
    entrant->wrong = rank_.team.Sum(CountWrong(shape_, rank_.team.rank(), entrant->contestant->Run()));
  }

  void Report() {
    const Table table({{.title = "by", .width = 12, .align = Table::Column::Align::kLeft},
                       {.title = "calls", .width = 8},
                       {.title = "min", .width = 8, .group = "us, of rank 0"},
                       {.title = "median", .width = 8, .group = "us, of rank 0"},
                       {.title = "p90", .width = 8, .group = "us, of rank 0"},
                       {.title = "p99", .width = 8, .group = "us, of rank 0"},
                       {.title = "max", .width = 9, .group = "us, of rank 0"},
                       {.title = "#wrong"}});
    rank_.output.Print(
        absl::StrFormat("# allreduce of %s, blocking, call by call\n%s", FormatSize(shape_.bytes()), table.Header()));
    for (const Entrant& entrant : entrants_) {
      const Summary times = Summarize(entrant.microseconds);
      rank_.output.Print(
          table.Row({entrant.contestant->name(), absl::StrCat(times.count), Fixed(times.min, 2), Fixed(times.median, 2),
                     Fixed(times.p90, 2), Fixed(times.p99, 2), Fixed(times.max, 2), absl::StrCat(entrant.wrong)}));
      Record(entrant, times);
    }
    rank_.output.Print("# client, us\n" + HistogramOf(entrants_.front()).Text());
  }

  static Histogram HistogramOf(const Entrant& entrant) {
    Histogram histogram;
    for (const double value : entrant.microseconds) histogram.Add(std::max(value, 1e-3));
    return histogram;
  }

  void Record(const Entrant& entrant, const Summary& times) {
    std::vector<double> begins;
    std::vector<double> counts;
    for (const Histogram::Bucket& bucket : HistogramOf(entrant).Buckets()) {
      begins.push_back(bucket.begin);
      counts.push_back(static_cast<double>(bucket.count));
    }
    const bool is_peer = entrant.contestant->kind() == Contestant::Kind::kPeer;
    rank_.results.Add({{"measure", "calls"},
                       {"contestant", entrant.contestant->name()},
                       {"kind", is_peer ? "peer" : "ronda"},
                       {"ranks", int64_t{shape_.ranks}},
                       {"bytes", static_cast<int64_t>(shape_.bytes())},
                       {"calls", static_cast<int64_t>(times.count)},
                       {"min_us", times.min},
                       {"median_us", times.median},
                       {"p90_us", times.p90},
                       {"p99_us", times.p99},
                       {"max_us", times.max},
                       {"wrong", entrant.wrong},
                       {"histogram_begin_us", begins},
                       {"histogram_count", counts}});
  }

  // The client alone: a waiting peer may poll, which would be counted as Ronda's.
  void MeasureIdle() {
    if (options_.idle == absl::ZeroDuration()) return;
    rank_.output.Progress(1, "idling");
    rank_.team.Barrier();
    constexpr absl::Duration kSettling = absl::Milliseconds(100);  // until every thread sleeps
    MeasureIdleCost(kSettling);
    const IdleCost own = MeasureIdleCost(options_.idle);
    const double cpu = rank_.team.Max(own.cpu_microseconds);
    const double switches = rank_.team.Max(static_cast<double>(own.context_switches));
    const double seconds = absl::ToDoubleSeconds(options_.idle);
    rank_.output.Print(
        absl::StrFormat("# idle for %g s, all threads of the busiest rank: %.0f us of CPU, %.0f context "
                        "switches\n",
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
  std::vector<Entrant> entrants_;
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
  flags.Add({.names = {"--calls"}, .value = "N", .help = "Of each contestant, after those that warm up (20000)."},
            Integer(&options.calls, {.min = 1}));
  flags.Add({.names = {"--rounds"}, .value = "N", .help = "In which the contestants take turns (5)."},
            Integer(&options.rounds, {.min = 1, .max = 10000}));
  flags.Add({.names = {"--idle"}, .value = "TIME", .help = "For which the job is idle at the end (3s); 0: not at all."},
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
