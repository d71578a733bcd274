// SPDX-License-Identifier: Apache-2.0

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/elastic_steps.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/launch.h"
#include "bench/harness/machine.h"
#include "bench/harness/output.h"
#include "bench/harness/peers.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
#include "client/ronda/elastic.hpp"
#include "runtime/base/status_macros.h"
#include "runtime/elastic/membership_message.h"

namespace ronda::bench {
namespace {

enum class ElasticMeasure { kRecovery, kStep };

constexpr const char* Name(ElasticMeasure measure) {
  return measure == ElasticMeasure::kRecovery ? "recovery" : "step";
}

struct ElasticOptions {
  ElasticMeasure measure = ElasticMeasure::kRecovery;
  int ranks = 4;
  int kills = 20;
  size_t bytes = 1 << 20;
  int seed = 1;
  std::vector<std::string> peers;
  ElasticStepOptions step;
  Results::Files files;
};

constexpr char kDescription[] =
    "Kills a random rank of an elastic job again and again, and times how the job goes on:\n"
    "from the kill to the end of the first complete step, minus a step. \"survivors\": the\n"
    "first step of those that are left; \"replaced\": the first one with a replacement;\n"
    "\"planned\": what the step is late in which the replacement is let in.\n"
    "With --measure step nobody is killed: times steps that end with step_done(), with\n"
    "should_stop() and with nothing, in turns in the same processes.\n"
    "\n"
    "  ronda-bench elastic -np 4 --kills 20 --peer torchrun\n"
    "  ronda-bench elastic -np 2 --measure step -b 64KiB\n";

// Rank 0's report about an epoch, written after the first step of the epoch. Times are in seconds on the machine's
// clock.
struct EpochStart {
  double step = 0;   // the median of its steps in earlier epochs; 0: there were none
  double left = 0;   // the end of its last step before this epoch
  double first = 0;  // the end of the first step
  std::vector<pid_t> members;
};

std::string Encode(const EpochStart& start) {
  return absl::StrFormat("%.9f %.9f %.9f %s", start.step, start.left, start.first, absl::StrJoin(start.members, " "));
}

std::optional<EpochStart> DecodeEpochStart(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  EpochStart start;
  if (words.size() < 4 || !absl::SimpleAtod(words[0], &start.step) || !absl::SimpleAtod(words[1], &start.left) ||
      !absl::SimpleAtod(words[2], &start.first)) {
    return std::nullopt;
  }
  for (size_t i = 3; i < words.size(); ++i) {
    if (!absl::SimpleAtoi(words[i], &start.members.emplace_back())) return std::nullopt;
  }
  return start;
}

// Set by SIGUSR1 in any member; the job must then end.
volatile std::sig_atomic_t is_to_end = 0;

// Records the step times of a member over all of its epochs.
class MemberSteps {
 public:
  // Records that a step of the current epoch ended at time `end`.
  void Add(double end) {
    if (in_epoch_ > 0) durations_.push_back(end - last_);
    last_ = end;
    ++in_epoch_;
  }

  // Starts an epoch and returns its report, to which the caller must still add the first step and the members.
  EpochStart Begin() {
    in_epoch_ = 0;
    return {.step = durations_.empty() ? 0 : Median(durations_), .left = last_};
  }

 private:
  std::vector<double> durations_;
  double last_ = 0;
  int64_t in_epoch_ = 0;
};

// The main function of a member of the timed job. The member sums gradients until any member receives SIGUSR1.
int RunForKills(size_t bytes) {
  std::signal(SIGUSR1, [](int) { is_to_end = 1; });
  std::vector<float> weights(bytes / sizeof(float) + 1), gradient(weights.size());
  MemberSteps steps;
  ronda::elastic::State state({ronda::tensor("weights", weights)});
  ronda::elastic::run(state, [&](const ronda::elastic::Membership& membership) {
    EpochStart start = steps.Begin();
    const int64_t pid = getpid();
    for (const int64_t member : ronda::allgather("pids", &pid, {1}))
      start.members.push_back(static_cast<pid_t>(member));
    for (bool is_first = true;; is_first = false) {
      std::fill(gradient.begin(), gradient.end(), static_cast<float>(is_to_end));
      ronda::allreduce(ronda::tensor("gradient", gradient), {ronda::Op::Sum});
      for (size_t i = 0; i < weights.size(); ++i) weights[i] -= gradient[i];
      state.step_done();
      steps.Add(NowSeconds());
      if (gradient[0] > 0) return;
      if (!is_first) continue;
      start.first = NowSeconds();
      Output(membership.rank, ProcessVariables()(kOutputVariable).value_or("")).Print(Encode(start));
    }
  });
  ronda::shutdown();
  return 0;
}

// How late the first step was after each kill of one job, in seconds.
struct Delays {
  std::vector<double> survivors, replaced, planned;
};

// Kills a random member each time the job has all its members, options.kills times in total. Then sends the signal that
// ends the job.
class Killer {
 public:
  Killer(const ElasticOptions& options, ProgressBar* progress)
      : options_(options), progress_(progress), random_(options.seed) {}

  void Receive(const EpochStart& start) {
    const bool is_whole = static_cast<int>(start.members.size()) == options_.ranks;
    const double delay = start.first - killed_at_ - start.step;
    if (is_pending_ && !is_whole && !has_survived_) {
      delays_.survivors.push_back(delay);
      has_survived_ = true;
    }
    if (!is_whole) return;
    if (is_pending_) delays_.replaced.push_back(delay);
    if (has_survived_) delays_.planned.push_back(start.first - start.left - start.step);
    is_pending_ = has_survived_ = false;
    if (kills_ < options_.kills) {
      Kill(start.members);
    } else {
      kill(start.members.front(), SIGUSR1);
    }
  }

  int kills() const { return kills_; }
  const Delays& delays() const { return delays_; }

 private:
  void Kill(const std::vector<pid_t>& members) {
    progress_->Show(static_cast<double>(kills_) / options_.kills, absl::StrCat("kill ", kills_ + 1));
    absl::SleepFor(absl::Milliseconds(std::uniform_int_distribution<int>(200, 500)(random_)));
    const pid_t victim = members[std::uniform_int_distribution<size_t>(0, members.size() - 1)(random_)];
    killed_at_ = NowSeconds();
    kill(victim, SIGKILL);
    is_pending_ = true;
    ++kills_;
  }

  const ElasticOptions& options_;
  ProgressBar* const progress_;
  std::mt19937 random_;
  Delays delays_;
  int kills_ = 0;
  bool is_pending_ = false;    // a kill whose replacement has not yet made a step
  bool has_survived_ = false;  // its survivors have made a step
  double killed_at_ = 0;
};

absl::StatusOr<LaunchCommand> PlanRonda(const ElasticOptions& options) {
  RONDA_ASSIGN_OR_RETURN(LaunchCommand plan,
                         PlanLaunch({.launcher = Launcher::kRondarun,
                                     .ranks = options.ranks,
                                     .command = {OwnProgram(), "elastic", "-b", absl::StrCat(options.bytes)}},
                                    FindInstalledProgram()));
  plan.words.insert(plan.words.begin() + 1, {"--min-np", absl::StrCat(options.ranks - 1)});
  return plan;
}

absl::StatusOr<LaunchCommand> PlanTorchrun(const ElasticOptions& options) {
  const std::string python = FindInstalledProgram()("python3");
  if (python.empty()) return absl::NotFoundError("--peer torchrun: there is no python3 in PATH");
  RONDA_ASSIGN_OR_RETURN(const std::string script, FindPeerFile("torchrun", "torchrun_elastic.py", "python3-torch"));
  // Without --redirects and --tee, PyTorch 1.13 fails under Python 3.11.
  return LaunchCommand{.words = {python, "-m", "torch.distributed.run", "--standalone", "--redirects=1", "--tee=1",
                                 "--nproc_per_node", absl::StrCat(options.ranks), "--max_restarts",
                                 absl::StrCat(options.kills + 1), script, absl::StrCat(options.bytes)}};
}

// Runs a job until all its kills have been made.
absl::StatusOr<Delays> MeasureJob(const std::string& name, const LaunchCommand& command,
                                  const ElasticOptions& options) {
  ProgressBar progress(stderr);
  Killer killer(options, &progress);
  const absl::StatusOr<int> exit_code = RunLaunch(command, [&](const OutputMessage& message) {
    if (const std::optional<EpochStart> start = DecodeEpochStart(message.text)) killer.Receive(*start);
  });
  RONDA_RETURN_IF_ERROR(exit_code.status());
  if (*exit_code != 0) {
    return absl::InternalError(
        absl::StrCat(name, ": the job failed with exit code ", *exit_code, " after kill ", killer.kills()));
  }
  return killer.delays();
}

ResultRow Row(const std::string& name, const ElasticOptions& options, const Delays& delays) {
  ResultRow row = {{"contestant", name}, {"ranks", int64_t{options.ranks}}, {"kills", int64_t{options.kills}}};
  for (const auto& [what, values] : {std::pair{"survivors", delays.survivors}, std::pair{"replaced", delays.replaced},
                                     std::pair{"planned", delays.planned}}) {
    if (values.empty()) continue;
    const Summary summary = Summarize(values);
    row.emplace_back(absl::StrCat(what, "_median_s"), summary.median);
    row.emplace_back(absl::StrCat(what, "_p90_s"), summary.p90);
    row.emplace_back(absl::StrCat(what, "_max_s"), summary.max);
    row.emplace_back(absl::StrCat(what, "_s"), values);
  }
  return row;
}

Table TableOfDelays() {
  std::vector<Table::Column> columns = {
      {.title = "by", .width = 10, .align = Table::Column::Align::kLeft, .field = "contestant"},
      {.title = "ranks", .field = "ranks"},
      {.title = "kills", .field = "kills"}};
  for (const std::string what : {"survivors", "replaced", "planned"}) {
    for (const char* of : {"median", "p90", "max"}) {
      columns.push_back({.title = of,
                         .width = 8,
                         .group = absl::StrCat("s, ", what),
                         .field = absl::StrCat(what, "_", of, "_s"),
                         .digits = 3});
    }
  }
  return Table(std::move(columns));
}

absl::Status MeasureRecovery(const ElasticOptions& options, Results* results) {
  std::vector<std::pair<std::string, LaunchCommand>> jobs;
  RONDA_ASSIGN_OR_RETURN(jobs.emplace_back("ronda", LaunchCommand()).second, PlanRonda(options));
  for (const std::string& peer : options.peers) {
    RONDA_ASSIGN_OR_RETURN(jobs.emplace_back(peer, LaunchCommand()).second, PlanTorchrun(options));
  }
  const Table table = TableOfDelays();
  std::fputs(table.Header().c_str(), stdout);
  for (const auto& [name, command] : jobs) {
    RONDA_ASSIGN_OR_RETURN(const Delays delays, MeasureJob(name, command, options));
    results->Add(Row(name, options, delays));
    std::fputs(table.RowOf(results->rows().back()).c_str(), stdout);
  }
  return absl::OkStatus();
}

void AddStepFlags(Flags* flags, ElasticStepOptions* options) {
  flags->Add({.names = {"--tensors"}, .value = "N", .help = "Gradients of a step (10). This and the next with step."},
             Integer(&options->tensors, {.min = 1, .max = 100000}));
  flags->Add({.names = {"--compute"}, .value = "LIST", .help = "Times that a step computes (0,200us)."},
             DurationList(&options->compute));
  flags->Add({.names = {"--steps"}, .value = "N", .help = "Of a block (200)."}, Integer(&options->steps, {.min = 1}));
  flags->Add({.names = {"--rounds"}, .value = "N", .help = "Of interleaved blocks (50)."},
             Integer(&options->rounds, {.min = 1, .max = 10000}));
}

// The main function of a process that rondarun started as a member.
int RunAsMember(const ElasticOptions& options) {
  return options.measure == ElasticMeasure::kStep ? RunStepsAsMember(options.step) : RunForKills(options.bytes);
}

absl::Status Measure(const ElasticOptions& options, const std::vector<std::string>& words) {
  Results results("elastic", words);
  RONDA_RETURN_IF_ERROR(options.measure == ElasticMeasure::kStep ? MeasureSteps(options.step, words, &results)
                                                                 : MeasureRecovery(options, &results));
  return results.Write(options.files);
}

int Run(const std::vector<std::string>& words) {
  ElasticOptions options;
  Flags flags("elastic", kDescription);
  flags.Add({.names = {"-np", "--ranks"}, .value = "N", .help = "Members of the job (4)."},
            Integer(&options.ranks, {.min = 2, .max = 1024}));
  flags.Add({.names = {"--kills"}, .value = "N", .help = "Kills (20)."},
            Integer(&options.kills, {.min = 1, .max = 10000}));
  flags.Add({.names = {"-b", "--bytes"}, .value = "SIZE", .help = "Gradients of a step (1MiB)."}, Size(&options.bytes));
  flags.Add({.names = {"--seed"}, .value = "N", .help = "Chooses the victims (1)."}, Integer(&options.seed, {}));
  flags.Add({.names = {"--peer"}, .value = "LIST", .help = "Runs torchrun's job, by gloo, too (torchrun)."},
            ChoiceList(&options.peers, {"torchrun"}));
  flags.Add({.names = {"--measure"}, .value = "WHAT", .help = "recovery or step (recovery)."},
            Named(&options.measure, {ElasticMeasure::kRecovery, ElasticMeasure::kStep}));
  AddStepFlags(&flags, &options.step);
  AddFileFlags(&flags, &options.files);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  options.step.ranks = options.ranks;
  options.step.bytes = options.bytes;
  if (ProcessVariables()(kMembershipVariable.c_str())) return RunAsMember(options);
  const absl::Status status = Measure(options, words);
  return status.ok() ? 0 : Explain(status);
}

}  // namespace

Command ElasticCommand() {
  return {.name = "elastic",
          .summary = "how long a job takes to go on when a rank is killed; the cost of step_done()",
          .run = Run};
}

}  // namespace ronda::bench
