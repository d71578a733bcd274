// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/launch.h"
#include "bench/harness/machine.h"
#include "bench/harness/output.h"
#include "bench/harness/peers.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
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
    "Times the start of a job: from the start of the launcher (rondarun; for a peer its\n"
    "own) to the end of the first allreduce on rank 0, and until the launcher has ended.\n"
    "\n"
    "  ronda-bench startup -np 2 --peer mpi,mpich\n";

// The main function of a rank of the timed job.
int RunAsRank(const LaunchedRank& launched) {
  float value = 1;
  ronda::init();
  ronda::allreduce(ronda::tensor("first", &value), {ronda::Op::Sum});
  Output(launched.rank, ProcessVariables()(kOutputVariable).value_or("")).Print(absl::StrFormat("%.9f", NowSeconds()));
  ronda::shutdown();
  return value == static_cast<float>(launched.size) ? 0 : 1;
}

// A job that the benchmark starts repeatedly, and its times.
struct StartedJob {
  std::string name;
  LaunchCommand command;
  std::string version = {};                // of a peer
  std::vector<double> first_seconds = {};  // until the first allreduce
  std::vector<double> total_seconds = {};  // until the launcher has ended
};

absl::StatusOr<StartedJob> PlanRonda(const StartupOptions& options) {
  StartedJob ronda{.name = "ronda"};
  RONDA_ASSIGN_OR_RETURN(
      ronda.command,
      PlanLaunch({.launcher = Launcher::kRondarun, .ranks = options.ranks, .command = {OwnProgram(), "startup"}},
                 FindInstalledProgram()));
  return ronda;
}

absl::StatusOr<StartedJob> PlanPeer(const StartupOptions& options, const std::string& name) {
  const PeerInfo& info = *FindPeer(name);
  if (!info.launcher) {
    return absl::InvalidArgumentError(absl::StrCat("--peer ", name, ": ", info.title, " has no launcher to time"));
  }
  RONDA_ASSIGN_OR_RETURN(const std::string program,
                         FindPeerFile(name, absl::StrCat(info.name, "_first_allreduce"), info.build_package));
  StartedJob peer{.name = info.name};
  RONDA_ASSIGN_OR_RETURN(peer.command, PlanLaunch({.launcher = *info.launcher,
                                                   .ranks = options.ranks,
                                                   .command = {program},
                                                   .user_id = static_cast<int>(getuid())},
                                                  FindInstalledProgram()));
  return peer;
}

absl::Status StartOnce(StartedJob* job) {
  double first = 0;
  const double start = NowSeconds();
  RONDA_ASSIGN_OR_RETURN(const int exit_code, RunLaunch(job->command, [&](const OutputMessage& message) {
                           if (message.kind == OutputMessage::Kind::kPeer) {
                             job->version = message.text;
                           } else {
                             static_cast<void>(absl::SimpleAtod(message.text, &first));
                           }
                         }));
  if (exit_code != 0 || first < start) {
    return absl::InternalError(absl::StrCat(job->name, ": the job failed with exit code ", exit_code));
  }
  job->first_seconds.push_back(first - start);
  job->total_seconds.push_back(NowSeconds() - start);
  return absl::OkStatus();
}

void Report(const std::vector<StartedJob>& jobs, int ranks, Results* results) {
  const std::string group = "s, to the first allreduce";
  const Table table({{.title = "by", .width = 10, .align = Table::Column::Align::kLeft, .field = "contestant"},
                     {.title = "ranks", .field = "ranks"},
                     {.title = "starts", .field = "starts"},
                     {.title = "first", .width = 8, .group = group, .field = "median_s", .digits = 4},
                     {.title = "p10", .width = 8, .group = group, .field = "p10_s", .digits = 4},
                     {.title = "p90", .width = 8, .group = group, .field = "p90_s", .digits = 4},
                     {.title = "total", .width = 8, .group = "s", .field = "total_median_s", .digits = 4}});
  std::fputs(table.Header().c_str(), stdout);
  for (const StartedJob& job : jobs) {
    const Summary first = Summarize(job.first_seconds);
    const ResultRow row = {{"contestant", job.name},
                           {"ranks", int64_t{ranks}},
                           {"starts", static_cast<int64_t>(first.count)},
                           {"median_s", first.median},
                           {"p10_s", first.p10},
                           {"p90_s", first.p90},
                           {"min_s", first.min},
                           {"total_median_s", Median(job.total_seconds)},
                           {"first_s", job.first_seconds}};
    std::fputs(table.RowOf(row).c_str(), stdout);
    results->Add(row);
    if (!job.version.empty()) results->AddPeer(job.version);
  }
}

absl::StatusOr<std::vector<StartedJob>> PlanJobs(const StartupOptions& options) {
  std::vector<StartedJob> jobs;
  RONDA_ASSIGN_OR_RETURN(jobs.emplace_back(), PlanRonda(options));
  for (const std::string& name : options.peers) {
    RONDA_ASSIGN_OR_RETURN(jobs.emplace_back(), PlanPeer(options, name));
  }
  return jobs;
}

absl::Status Measure(const StartupOptions& options, Results* results) {
  RONDA_ASSIGN_OR_RETURN(std::vector<StartedJob> jobs, PlanJobs(options));
  ProgressBar progress(stderr);
  for (int round = -1; round < options.rounds; ++round) {  // round -1 warms up: files are read
    for (StartedJob& job : jobs) {
      progress.Show(static_cast<double>(round + 1) / (options.rounds + 1), job.name);
      RONDA_RETURN_IF_ERROR(StartOnce(&job));
      if (round < 0) job.first_seconds.clear(), job.total_seconds.clear();
    }
  }
  progress.Clear();
  Report(jobs, options.ranks, results);
  return results->Write(options.files);
}

int Run(const std::vector<std::string>& words) {
  const absl::StatusOr<std::optional<LaunchedRank>> launched = FindLaunchedRank(ProcessVariables(), getppid());
  if (launched.ok() && launched->has_value()) return RunAsRank(**launched);
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
  return status.ok() ? 0 : Explain(status);
}

}  // namespace

Command StartupCommand() {
  return {.name = "startup", .summary = "from the launcher's start to the first allreduce", .run = Run};
}

}  // namespace ronda::bench
