// SPDX-License-Identifier: Apache-2.0

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "bench/advise/advice.h"
#include "bench/advise/link.h"
#include "bench/advise/profile.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/launch.h"
#include "bench/harness/machine.h"
#include "bench/harness/results.h"
#include "bench/harness/temporary_folder.h"
#include "runtime/base/bytes_text.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

struct AdviseOptions {
  std::vector<std::string> command;  // the program and its arguments
  std::vector<int> ranks;            // empty: chosen by the cores or the hosts
  std::string hosts;
  std::string rondarun_args;
  int local_size = 1;
  int copies = 0;  // 0: the ranks on a host
  model::MeasuredLink link;
  absl::Duration link_latency;
  absl::Duration limit = absl::Seconds(20);
  int batch = 0;
  Results::Files files;
};

constexpr char kDescription[] =
    "Says when data-parallel training pays for a program of yours. Runs it alone, and as many copies of it\n"
    "as ranks share a host, each without anybody to communicate with; learns from timelines how long it\n"
    "computes, and which gradients it exchanges when; times allreduces between ranks; and predicts the step\n"
    "on more ranks, for each wire format. Arguments give the program the work of one rank.\n"
    "\n"
    "  ronda-bench advise --ranks 2,4 -- ./train --batch-size 16\n"
    "  ronda-bench advise --hosts alpha:1,beta:1 --ranks 2,8,64 -- python3 train.py\n"
    "  ronda-bench advise --link-gbit 10 --link-latency 20us --ranks 2,8,64 -- ./train";

void AddFlags(Flags* flags, AdviseOptions* options) {
  const IntegerRange any = {.min = 1, .max = 1 << 20};
  flags->Add({.names = {"--ranks", "-np"},
              .value = "LIST",
              .help = "Numbers of ranks to predict: without hosts or link on this host, 2 up to its cores; else\n"
                      "2, 4, 8 and 16 hosts."},
             IntegerList(&options->ranks, {.min = 2, .max = 1 << 20}));
  flags->Add({.names = {"--hosts", "-H"},
              .value = "HOST:SLOTS,...",
              .help = "Time allreduces between these hosts, all with as many slots, of which this is the first."},
             Text(&options->hosts));
  flags->Add({.names = {"--rondarun-args"}, .value = "\"WORDS\"", .help = "More of rondarun's options for that."},
             Text(&options->rondarun_args));
  flags->Add({.names = {"--link-gbit"},
              .value = "GBIT/S",
              .help = "Time nothing: hosts are joined by a link of this rate, each way, which CPUs drive (TCP)."},
             Number(&options->link.gbit));
  flags->Add({.names = {"--link-latency"}, .value = "TIME", .help = "Of a small message on that link (0)."},
             Duration(&options->link_latency));
  flags->Add({.names = {"--local-size"}, .value = "N", .help = "Ranks a host, with --link-gbit (1)."},
             Integer(&options->local_size, any));
  flags->Add({.names = {"--copies"},
              .value = "N",
              .help = "Copies that run at the same time, instead of the ranks that share a host."},
             Integer(&options->copies, any));
  flags->Add({.names = {"--limit"}, .value = "TIME", .help = "End the program after so long (20s)."},
             Duration(&options->limit));
  flags->Add({.names = {"--batch"}, .value = "N", .help = "The program's batch, to name the batches that pay."},
             Integer(&options->batch, any));
  AddFileFlags(flags, &options->files);
}

// How one copy of the program ended.
struct EndedCopy {
  int wait_status = 0;
  bool was_told_to = false;
  double cpu_seconds = 0;
  double seconds = 0;
};

// Checks whether the process has ended.
bool HasEnded(pid_t process, absl::Time start, EndedCopy* ended) {
  rusage usage = {};
  if (wait4(process, &ended->wait_status, WNOHANG, &usage) == 0) return false;
  ended->seconds = absl::ToDoubleSeconds(SteadyNow() - start);
  ended->cpu_seconds =
      absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime));
  return true;
}

// Waits until all processes have ended. At `deadline`, sends SIGTERM to the processes that are still running.
std::vector<EndedCopy> AwaitAll(const std::vector<pid_t>& processes, absl::Time start, absl::Time deadline) {
  constexpr absl::Duration kPoll = absl::Milliseconds(20);
  std::vector<EndedCopy> copies(processes.size());
  for (size_t left = processes.size(); left > 0; absl::SleepFor(kPoll)) {
    for (size_t i = 0; i < processes.size(); ++i) {
      if (copies[i].seconds > 0) continue;
      if (HasEnded(processes[i], start, &copies[i])) {
        --left;
      } else if (!copies[i].was_told_to && SteadyNow() >= deadline) {
        kill(processes[i], SIGTERM);
        copies[i].was_told_to = true;
      }
    }
  }
  return copies;
}

// The results of running copies of the program at the same time, each as a separate one-rank job.
struct CopiesRun {
  Profile profile;  // with the steps of all copies
  double busy_cores = 0;
};

absl::StatusOr<CopiesRun> RunCopies(const AdviseOptions& options, int copies) {
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  const auto file_of = [&](int copy, const char* suffix) { return folder->PathOf(absl::StrCat(copy, suffix)); };
  std::vector<pid_t> processes;
  const absl::Time start = SteadyNow();
  for (int copy = 0; copy < copies; ++copy) {
    RONDA_ASSIGN_OR_RETURN(LaunchCommand command,
                           PlanLaunch({.ranks = 1, .command = options.command}, FindInstalledProgram()));
    command.environment = {{"RONDA_TIMELINE", file_of(copy, ".json")}, {"RONDA_TIMELINE_MAX_MB", "32"}};
    command.output_file = file_of(copy, ".txt");
    RONDA_ASSIGN_OR_RETURN(processes.emplace_back(), StartLaunch(command));
  }
  CopiesRun run;
  absl::Status status;
  const std::vector<EndedCopy> all = AwaitAll(processes, start, start + options.limit);
  for (int copy = 0; copy < copies; ++copy) {
    const EndedCopy& ended = all[static_cast<size_t>(copy)];
    run.busy_cores += ended.cpu_seconds / ended.seconds / copies;
    if (ended.wait_status == 0 || ended.was_told_to) continue;
    status.Update(absl::InternalError(
        absl::StrCat(absl::StrJoin(options.command, " "), " failed alone:\n", LastLines(file_of(copy, ".txt")))));
  }
  RONDA_RETURN_IF_ERROR(status);
  for (int copy = 0; copy < copies; ++copy) {
    const absl::StatusOr<std::string> timeline = ReadFile(file_of(copy, ".rank0.json"));
    if (!timeline.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(options.command.front(), " has not begun a job of Ronda's within ",
                       absl::FormatDuration(options.limit), ":\n", LastLines(file_of(copy, ".txt"))));
    }
    RONDA_ASSIGN_OR_RETURN(Profile profile, ProfileOf(*timeline));
    profile.steps.insert(profile.steps.end(), run.profile.steps.begin(), run.profile.steps.end());
    run.profile = std::move(profile);
  }
  std::sort(run.profile.steps.begin(), run.profile.steps.end());
  return run;
}

// How many hosts there are, and how many ranks each has. If there is only one host, it is this machine.
struct Hosts {
  int count = 1;
  int slots = 1;
};

absl::StatusOr<Hosts> HostsOf(const AdviseOptions& options) {
  if (options.hosts.empty()) return Hosts{.count = options.link.gbit > 0 ? 2 : 1, .slots = options.local_size};
  Hosts hosts = {.count = 0, .slots = 0};
  for (const absl::string_view host : absl::StrSplit(options.hosts, ',')) {
    int slots = 0;
    const size_t colon = host.rfind(':');
    const bool is_number = colon != absl::string_view::npos && absl::SimpleAtoi(host.substr(colon + 1), &slots);
    if (!is_number || slots < 1 || (hosts.slots != 0 && hosts.slots != slots)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--hosts takes HOST:SLOTS,... with as many slots for each host, not \"", options.hosts, "\""));
    }
    hosts.slots = slots;
    ++hosts.count;
  }
  if (hosts.count < 2) return absl::InvalidArgumentError("--hosts takes two hosts or more; leave it out on one");
  return hosts;
}

std::vector<int> DefaultRanks(const Hosts& hosts) {
  if (hosts.count > 1) return {2 * hosts.slots, 4 * hosts.slots, 8 * hosts.slots, 16 * hosts.slots};
  std::vector<int> ranks = {2};
  for (int next = 4; next <= DescribeMachine().cores; next *= 2) ranks.push_back(next);
  return ranks;
}

absl::StatusOr<std::vector<Plan>> PlansOf(const AdviseOptions& options, const Hosts& hosts) {
  std::vector<Plan> plans;
  for (const int ranks : options.ranks.empty() ? DefaultRanks(hosts) : options.ranks) {
    if (hosts.count == 1) {
      plans.push_back({.ranks = ranks, .members = ranks, .on_host = ranks});
    } else if (ranks > hosts.slots) {
      const int members = (ranks + hosts.slots - 1) / hosts.slots;
      plans.push_back({.ranks = ranks, .members = members, .on_host = hosts.slots});
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--ranks ", ranks, " fit on one host of ", hosts.slots,
                                                     " ranks: predict them in a run without hosts"));
    }
  }
  return plans;
}

// Runs the program, times links, and caches the measurements. Thread-compatible.
class Laboratory {
 public:
  Laboratory(const AdviseOptions& options, const Hosts& hosts) : options_(options), hosts_(hosts) {}

  // Runs the program alone, and as one of `copies` copies.
  absl::StatusOr<Program> ProgramAs(int copies) {
    RONDA_ASSIGN_OR_RETURN(const CopiesRun* alone, Copies(1));
    RONDA_ASSIGN_OR_RETURN(const CopiesRun* shared, Copies(copies));
    return Program{.alone = alone->profile,
                   .shared = shared->profile,
                   .busy_cores = shared->busy_cores,
                   .cores = DescribeMachine().cores};
  }

  absl::StatusOr<std::vector<WireOnLink>> WiresFor(const Plan& plan, double bytes) {
    if (options_.hosts.empty() && options_.link.gbit > 0) return LinkFromNumbers(options_.link, hosts_.slots);
    const bool is_one_host = hosts_.count == 1;
    LinkRequest request = {.ranks = is_one_host ? plan.ranks : hosts_.count * hosts_.slots,
                           .members = is_one_host ? plan.ranks : hosts_.count,
                           .rondarun_options = absl::StrSplit(options_.rondarun_args, ' ', absl::SkipEmpty()),
                           .largest = bytes};
    if (!is_one_host) {
      request.rondarun_options.push_back("-H");
      request.rondarun_options.push_back(options_.hosts);
    }
    if (links_.count(request.ranks) == 0) {
      RONDA_ASSIGN_OR_RETURN(std::vector<WireOnLink> wires, MeasureLink(request));
      links_.emplace(request.ranks, std::move(wires));
    }
    return links_.at(request.ranks);
  }

 private:
  absl::StatusOr<const CopiesRun*> Copies(int copies) {
    if (runs_.count(copies) == 0) {
      std::fprintf(stderr, "ronda-bench: %d of %s, for %s at most\n", copies, options_.command.front().c_str(),
                   absl::FormatDuration(options_.limit).c_str());
      RONDA_ASSIGN_OR_RETURN(runs_[copies], RunCopies(options_, copies));
    }
    return &runs_[copies];
  }

  const AdviseOptions& options_;
  const Hosts hosts_;
  std::map<int, CopiesRun> runs_;
  std::map<int, std::vector<WireOnLink>> links_;
};

// The results for one number of ranks.
struct Advice {
  Program program;
  std::vector<WireOnLink> wires;
  Forecast forecast;
};

std::string Milliseconds(double seconds) { return Short(1e3 * seconds); }

void PrintProfile(const AdviseOptions& options, const Program& program) {
  const Profile& alone = program.alone;
  const double first = alone.gradients.front().ready;
  std::printf(
      "# %s\n# alone: %zu steps of %s ms (median; a tenth take less than %s, a tenth more than %s)\n"
      "# %zu gradients of %s MB in all; the first is ready after %.0f %% of the step\n",
      absl::StrJoin(options.command, " ").c_str(), alone.steps.size(), Milliseconds(alone.median()).c_str(),
      Milliseconds(alone.steps[alone.steps.size() / 10]).c_str(),
      Milliseconds(alone.steps[alone.steps.size() * 9 / 10]).c_str(), alone.gradients.size(),
      Short(1e-6 * alone.bytes()).c_str(), 100 * first);
}

void PrintTable(const std::vector<Advice>& advices) {
  std::vector<Table::Column> columns = {
      {.title = "ranks", .width = 6}, {.title = "a host", .width = 6}, {.title = "compute, ms", .width = 11}};
  for (const WireOnLink& wire : advices.front().wires) {
    columns.push_back({.title = "step, ms", .width = 9, .group = wire.name});
    columns.push_back({.title = "efficiency", .width = 10, .group = wire.name});
    columns.push_back({.title = "sync, ms", .width = 9, .group = wire.name});
  }
  const Table table(std::move(columns));
  std::fputs(table.Header().c_str(), stdout);
  for (const Advice& advice : advices) {
    std::vector<std::string> cells = {absl::StrCat(advice.forecast.plan.ranks),
                                      absl::StrCat(advice.forecast.plan.on_host),
                                      Milliseconds(advice.forecast.wires.front().compute)};
    for (const Prediction& prediction : advice.forecast.wires) {
      cells.push_back(Milliseconds(prediction.step));
      cells.push_back(Fixed(prediction.efficiency, 2));
      cells.push_back(Milliseconds(prediction.sync));
    }
    std::fputs(table.Row(cells).c_str(), stdout);
  }
}

// Returns a text such as "0.25 times this batch (4)".
std::string BatchText(double factor, int batch) {
  if (std::isinf(factor)) return "no batch";
  if (factor == 0) return "any batch";
  std::string text = absl::StrCat(Short(factor), " times this batch");
  if (batch > 0) absl::StrAppend(&text, " (", static_cast<int>(std::ceil(factor * batch)), ")");
  return text;
}

void PrintAdvice(const Advice& advice, int batch) {
  const Forecast& forecast = advice.forecast;
  const size_t best = BestWire(forecast);
  const WireOnLink& wire = advice.wires[best];
  const Prediction& prediction = forecast.wires[best];
  const int ranks = forecast.plan.ranks;
  std::printf("\n%d ranks: %s times as fast as one, with compression %s.\n", ranks,
              Short(ranks * prediction.efficiency).c_str(), wire.name.c_str());
  std::printf("  T_sync / T_comp is %s. They are faster than one rank from %s, and 0.9 efficient from %s.\n",
              Short(prediction.sync / prediction.compute).c_str(),
              BatchText(BatchFactorFor(advice.program, wire, forecast.plan, 1), batch).c_str(),
              BatchText(BatchFactorFor(advice.program, wire, forecast.plan, 0.9 * ranks), batch).c_str());
  if (prediction.tuned < prediction.step) {
    std::printf("  RONDA_MIN_BUCKET_BYTES=%s makes the step %s ms.\n",
                BytesText(static_cast<size_t>(prediction.min_bucket)).c_str(), Milliseconds(prediction.tuned).c_str());
  }
  if (prediction.compute > 1.1 * advice.program.alone.median()) {
    std::printf("  Of the loss, %.0f %% of a step are the ranks' own: they share a host's cores, or vary.\n",
                100 * (1 - advice.program.alone.median() / prediction.compute));
  }
}

void AddRows(const Advice& advice, Results* results) {
  for (size_t i = 0; i < advice.wires.size(); ++i) {
    const Prediction& prediction = advice.forecast.wires[i];
    results->Add({{"ranks", int64_t{advice.forecast.plan.ranks}},
                  {"on_host", int64_t{advice.forecast.plan.on_host}},
                  {"wire", advice.wires[i].name},
                  {"alone_s", advice.program.alone.median()},
                  {"compute_s", prediction.compute},
                  {"sync_s", prediction.sync},
                  {"step_s", prediction.step},
                  {"tuned_s", prediction.tuned},
                  {"min_bucket", prediction.min_bucket},
                  {"efficiency", prediction.efficiency},
                  {"cpu_share", advice.wires[i].cpu_share},
                  {"busy_cores", advice.program.busy_cores}});
  }
}

absl::StatusOr<std::vector<Advice>> Measure(const AdviseOptions& options) {
  RONDA_ASSIGN_OR_RETURN(const Hosts hosts, HostsOf(options));
  RONDA_ASSIGN_OR_RETURN(const std::vector<Plan> plans, PlansOf(options, hosts));
  Laboratory laboratory(options, hosts);
  std::vector<Advice> advices;
  for (const Plan& plan : plans) {
    Advice advice = {.forecast = {.plan = plan}};
    RONDA_ASSIGN_OR_RETURN(advice.program, laboratory.ProgramAs(options.copies > 0 ? options.copies : plan.on_host));
    RONDA_ASSIGN_OR_RETURN(advice.wires, laboratory.WiresFor(plan, advice.program.alone.bytes()));
    for (const WireOnLink& wire : advice.wires) {
      advice.forecast.wires.push_back(Predict(advice.program, wire, plan));
    }
    advices.push_back(std::move(advice));
  }
  return advices;
}

absl::Status Advise(const AdviseOptions& options, const std::vector<std::string>& words) {
  if (options.command.empty()) {
    return absl::InvalidArgumentError("advise needs a program: ronda-bench advise [OPTION]... -- ./train ARGS");
  }
  RONDA_ASSIGN_OR_RETURN(const std::vector<Advice> advices, Measure(options));
  PrintProfile(options, advices.front().program);
  PrintTable(advices);
  Results results("advise", words);
  for (const Advice& advice : advices) {
    PrintAdvice(advice, options.batch);
    AddRows(advice, &results);
  }
  return results.Write(options.files);
}

int RunAdvise(const std::vector<std::string>& words) {
  const absl::StatusOr<std::optional<LaunchedRank>> launched = FindLaunchedRank(ProcessVariables(), getppid());
  if (!launched.ok() || launched->has_value()) return RunAsLinkRank(words);
  AdviseOptions options;
  const auto separator = std::find(words.begin(), words.end(), "--");
  if (separator != words.end()) options.command.assign(separator + 1, words.end());
  Flags flags("advise", kDescription);
  AddFlags(&flags, &options);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, {words.begin(), separator}, &exit_code)) return exit_code;
  options.link.latency = absl::ToDoubleSeconds(options.link_latency);
  const absl::Status status = Advise(options, words);
  return status.ok() ? 0 : Explain(status);
}

}  // namespace

Command AdviseCommand() {
  return {.name = "advise", .summary = "when data-parallel training pays, for a program of yours", .run = RunAdvise};
}

}  // namespace ronda::bench
