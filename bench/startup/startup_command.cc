#include "bench/startup/startup_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/arguments.h"
#include "bench/job.h"
#include "bench/launch.h"
#include "bench/output.h"
#include "bench/peers/peer_library.h"
#include "bench/place.h"
#include "bench/progress.h"
#include "bench/results.h"
#include "bench/statistics.h"
#include "bench/table.h"
#include "client/ronda.hpp"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

struct StartupOptions {
  int ranks = 2;
  std::vector<std::string> peers;
  int rounds = 10;
  Results::Files files;
};

constexpr char kDescription[] =
    "Times how long a job takes to start: from the start of the launcher (rondarun; for a peer its\n"
    "own) to the end of the first allreduce on rank 0, and until the launcher has ended.\n"
    "\n"
    "  ronda-bench startup -np 2 --peer mpi,mpich\n";

// The clock that all processes of a machine share.
double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A rank of the job that is timed.
int RunAsRank(const Place& place) {
  float value = 1;
  ronda::init();
  ronda::allreduce(ronda::tensor("first", &value), {ronda::Op::Sum});
  Output(place.rank, ProcessVariables()(kOutputVariable).value_or("")).Print(absl::StrFormat("%.9f", NowSeconds()));
  ronda::shutdown();
  return value == static_cast<float>(place.size) ? 0 : 1;
}

// What is started again and again.
struct Contestant {
  std::string name;
  LaunchCommand command;
  std::vector<double> first_seconds = {};  // until the first allreduce
  std::vector<double> total_seconds = {};  // until the launcher has ended
};

absl::StatusOr<Contestant> PlanRonda(const StartupOptions& options) {
  Contestant ronda{.name = "ronda"};
  RONDA_ASSIGN_OR_RETURN(
      ronda.command,
      PlanLaunch({.launcher = Launcher::kRondarun, .ranks = options.ranks, .command = {OwnProgram(), "startup"}},
                 FindInstalledProgram()));
  return ronda;
}

absl::StatusOr<Contestant> PlanPeer(const StartupOptions& options, const std::string& name) {
  const PeerInfo& info = *FindPeer(name);
  if (!info.launcher) return absl::NotFoundError(absl::StrCat("--peer ", name, ": ", info.title, " has no launcher"));
  const std::string program = FindPeerFile(absl::StrCat(info.name, "_first_allreduce"));
  if (program.empty()) {
    return absl::NotFoundError(absl::StrCat("--peer ", name, ": the program for ", info.title,
                                            " is not built: install Debian's ", info.packages));
  }
  Contestant peer{.name = info.name};
  RONDA_ASSIGN_OR_RETURN(peer.command, PlanLaunch({.launcher = *info.launcher,
                                                   .ranks = options.ranks,
                                                   .command = {program},
                                                   .user_id = static_cast<int>(getuid())},
                                                  FindInstalledProgram()));
  return peer;
}

absl::Status StartOnce(Contestant* contestant) {
  double first = 0;
  const double start = NowSeconds();
  RONDA_ASSIGN_OR_RETURN(const int exit_code, RunLaunch(contestant->command, [&](const OutputMessage& message) {
                           static_cast<void>(absl::SimpleAtod(message.text, &first));
                         }));
  if (exit_code != 0 || first < start) {
    return absl::InternalError(absl::StrCat(contestant->name, ": the job failed with exit code ", exit_code));
  }
  contestant->first_seconds.push_back(first - start);
  contestant->total_seconds.push_back(NowSeconds() - start);
  return absl::OkStatus();
}

void Report(const std::vector<Contestant>& contestants, int ranks, Results* results) {
  const Table table({{.title = "by", .width = 10, .align = Table::Column::Align::kLeft},
                     {.title = "ranks"},
                     {.title = "starts"},
                     {.title = "first", .width = 8, .group = "s, to the first allreduce"},
                     {.title = "p10", .width = 8, .group = "s, to the first allreduce"},
                     {.title = "p90", .width = 8, .group = "s, to the first allreduce"},
                     {.title = "total", .width = 8, .group = "s"}});
  std::fputs(table.Header().c_str(), stdout);
  for (const Contestant& contestant : contestants) {
    const Summary first = Summarize(contestant.first_seconds);
    const double total = Median(contestant.total_seconds);
    std::fputs(table
                   .Row({contestant.name, absl::StrCat(ranks), absl::StrCat(first.count), Fixed(first.median, 4),
                         Fixed(first.p10, 4), Fixed(first.p90, 4), Fixed(total, 4)})
                   .c_str(),
               stdout);
    results->Add({{"contestant", contestant.name},
                  {"ranks", int64_t{ranks}},
                  {"starts", static_cast<int64_t>(first.count)},
                  {"median_s", first.median},
                  {"p10_s", first.p10},
                  {"p90_s", first.p90},
                  {"min_s", first.min},
                  {"total_median_s", total},
                  {"first_s", contestant.first_seconds}});
  }
}

absl::StatusOr<std::vector<Contestant>> MakeContestants(const StartupOptions& options) {
  std::vector<Contestant> contestants;
  RONDA_ASSIGN_OR_RETURN(contestants.emplace_back(), PlanRonda(options));
  for (const std::string& name : options.peers) {
    absl::StatusOr<Contestant> peer = PlanPeer(options, name);
    if (peer.ok()) {
      contestants.push_back(*std::move(peer));
    } else {
      std::fprintf(stderr, "ronda-bench: %s\n", std::string(peer.status().message()).c_str());
    }
  }
  return contestants;
}

absl::Status Measure(const StartupOptions& options, Results* results) {
  RONDA_ASSIGN_OR_RETURN(std::vector<Contestant> contestants, MakeContestants(options));
  ProgressBar progress(stderr);
  for (int round = -1; round < options.rounds; ++round) {  // the first one warms up: files are read
    for (Contestant& contestant : contestants) {
      progress.Show(static_cast<double>(round + 1) / (options.rounds + 1), contestant.name);
      RONDA_RETURN_IF_ERROR(StartOnce(&contestant));
      if (round < 0) contestant.first_seconds.clear(), contestant.total_seconds.clear();
    }
  }
  progress.Clear();
  Report(contestants, options.ranks, results);
  return results->Write(options.files);
}

int Run(const std::vector<std::string>& words) {
  const absl::StatusOr<std::optional<Place>> place = FindPlace(ProcessVariables(), getppid());
  if (place.ok() && place->has_value()) return RunAsRank(**place);
  StartupOptions options;
  Flags flags("startup", kDescription);
  flags.Add({.names = {"-np", "--ranks"}, .value = "N", .help = "Ranks of the jobs (2)."},
            Integer(&options.ranks, {.min = 1, .max = 1024}));
  AddPeerFlag(&flags, &options.peers);
  flags.Add({.names = {"--rounds"}, .value = "N", .help = "Starts of each, after one that warms up (10)."},
            Integer(&options.rounds, {.min = 1, .max = 10000}));
  AddFileFlags(&flags, &options.files);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  Results results("startup", words);
  const absl::Status status = Measure(options, &results);
  if (status.ok()) return 0;
  std::fprintf(stderr, "ronda-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

Command StartupCommand() {
  return {.name = "startup", .summary = "from the launcher's start to the first allreduce", .run = Run};
}

}  // namespace ronda::bench
