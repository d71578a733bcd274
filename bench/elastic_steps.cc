// SPDX-License-Identifier: Apache-2.0

#include "bench/elastic_steps.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/harness/launch.h"
#include "bench/harness/machine.h"
#include "bench/harness/output.h"
#include "bench/harness/statistics.h"
#include "bench/step/step_loop.h"
#include "client/ronda/elastic.hpp"
#include "runtime/base/bytes_text.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

constexpr int kWarmUp = 30;  // steps until the job's schedule is locked again
constexpr int kMarks = 10000;

using Clock = std::chrono::steady_clock;

double NanosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// Returns how many context switches the threads of this process have made so far.
double ContextSwitches() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_nvcsw + usage.ru_nivcsw);
}

// A function that ends a step, and this rank's step times with it.
struct Ending {
  std::string name;
  std::function<void()> end_step;
  std::vector<double> step_ns = {};   // the mean of each block
  std::vector<double> switches = {};  // of context, in a step
  std::vector<double> call_ns = {};   // single calls, in separate steps
};

// An optimizer whose update takes no time.
struct NoUpdate {
  void step() {}
};

// A training loop like the one in docs/elastic.md. Thread-compatible.
class StepsOfMember {
 public:
  // REQUIRES: the process has joined the job.
  StepsOfMember(const ElasticStepOptions& options, elastic::State* state, Output* output)
      : options_(options), state_(state), output_(output) {
    const auto tensors = static_cast<size_t>(options.tensors);
    values_.assign(tensors, std::vector<float>(std::max<size_t>(1, options.bytes / sizeof(float) / tensors), 1));
    std::vector<Tensor> gradients;
    for (std::vector<float>& values : values_) {
      gradients.push_back(ronda::tensor(absl::StrCat("layer", gradients.size(), "/gradient"), values));
    }
    optimizer_.emplace(no_update_, std::move(gradients));
  }

  void Run() {
    for (const absl::Duration compute : options_.compute) Measure(compute);
  }

 private:
  void Measure(absl::Duration compute) {
    Ending endings[] = {{.name = "nothing", .end_step = [] {}},
                        {.name = "should_stop()", .end_step = [] { (void)ronda::should_stop(); }},
                        {.name = "step_done()", .end_step = [this] { state_->step_done(); }}};
    std::vector<double> mark_ns;
    for (int round = 0; round < options_.rounds; ++round) {
      output_->Progress(static_cast<double>(round) / options_.rounds, absl::FormatDuration(compute));
      // Each round starts with a different ending. Otherwise, a drift of the machine's speed could look like a
      // difference between the endings.
      for (size_t i = 0; i < std::size(endings); ++i) {
        RunBlock(compute, &endings[(i + static_cast<size_t>(round)) % std::size(endings)]);
      }
      mark_ns.push_back(TimeMarks());
    }
    for (const Ending& ending : endings) Report(compute, ending, endings[0], Median(mark_ns));
  }

  void RunStep(absl::Duration compute) {
    const Computation pass(ComputeKind::kSpin);
    pass.Until(compute);
    for (size_t i = values_.size(); i > 0; --i) optimizer_->gradient_ready(i - 1);
    optimizer_->step();
  }

  void RunBlock(absl::Duration compute, Ending* ending) {
    const auto run = [&](int steps) {
      for (int step = 0; step < steps; ++step) {
        RunStep(compute);
        ending->end_step();
      }
    };
    run(kWarmUp);
    const double switches = ContextSwitches();
    const auto begin = Clock::now();
    run(options_.steps);
    ending->step_ns.push_back(NanosecondsSince(begin) / options_.steps);
    ending->switches.push_back((ContextSwitches() - switches) / options_.steps);
    // The timed calls are made outside the block, because timing a call reads the clock twice.
    for (int step = 0; step < options_.steps / 10 + 1; ++step) {
      RunStep(compute);
      const auto call = Clock::now();
      ending->end_step();
      ending->call_ns.push_back(NanosecondsSince(call));
    }
  }

  static double TimeMarks() {
    const auto begin = Clock::now();
    for (int i = 0; i < kMarks; ++i) {
      ronda_elastic_begin_update();
      ronda_elastic_end_update();
    }
    return NanosecondsSince(begin) / kMarks;
  }

  void Report(absl::Duration compute, const Ending& ending, const Ending& nothing, double mark_ns) {
    std::vector<double> extra;
    for (size_t i = 0; i < ending.step_ns.size(); ++i) extra.push_back(ending.step_ns[i] - nothing.step_ns[i]);
    const Summary beyond = Summarize(extra);
    const ResultRow row = {{"measure", "step"},
                           {"ending", ending.name},
                           {"ranks", int64_t{options_.ranks}},
                           {"tensors", int64_t{options_.tensors}},
                           {"bytes", static_cast<int64_t>(options_.bytes)},
                           {"compute_us", absl::ToDoubleMicroseconds(compute)},
                           {"step_us", Median(ending.step_ns) / 1000},
                           {"ratio", MedianRatio(ending.step_ns, nothing.step_ns)},
                           {"extra_median_ns", beyond.median},
                           {"extra_p10_ns", beyond.p10},
                           {"extra_p90_ns", beyond.p90},
                           {"call_median_ns", Median(ending.call_ns)},
                           {"switches", Median(ending.switches)},
                           {"marks_ns", mark_ns},
                           {"extra_ns", extra}};
    if (output_->has_reader()) output_->Row(EncodeRow(row));
  }

  const ElasticStepOptions options_;
  elastic::State* const state_;
  Output* const output_;
  std::vector<std::vector<float>> values_;
  NoUpdate no_update_;
  std::optional<DistributedOptimizer<NoUpdate>> optimizer_;
};

Table TableOfEndings() {
  const std::string extra = "ns beyond nothing";
  return Table({{.title = "ends with", .width = 13, .align = Table::Column::Align::kLeft, .field = "ending"},
                {.title = "compute us", .field = "compute_us", .digits = 0},
                {.title = "step us", .width = 9, .field = "step_us"},
                {.title = "ratio", .width = 7, .field = "ratio", .digits = 3},
                {.title = "median", .width = 8, .group = extra, .field = "extra_median_ns", .digits = 0},
                {.title = "p10", .width = 8, .group = extra, .field = "extra_p10_ns", .digits = 0},
                {.title = "p90", .width = 8, .group = extra, .field = "extra_p90_ns", .digits = 0},
                {.title = "call ns", .width = 8, .field = "call_median_ns", .digits = 0},
                {.title = "switches", .field = "switches"},
                {.title = "marks ns", .width = 8, .field = "marks_ns"}});
}

double TellCoreDistance(const char* when) {
  const double distance = CoreDistanceNanoseconds();
  std::printf("# cache line between two cores, %s: %.0f ns\n", when, distance);
  return distance;
}

}  // namespace

int RunStepsAsMember(const ElasticStepOptions& options) {
  std::vector<float> weights(1);
  int64_t cursor = 0;  // as the sampler of a program has one
  elastic::State state({ronda::tensor("weights", weights)}, &cursor);
  elastic::run(state, [&](const elastic::Membership& membership) {
    Output output(membership.rank, ProcessVariables()(kOutputVariable).value_or(""));
    StepsOfMember(options, &state, &output).Run();
  });
  ronda::shutdown();
  return 0;
}

absl::Status MeasureSteps(const ElasticStepOptions& options, const std::vector<std::string>& words, Results* results) {
  LaunchRequest request = {.launcher = Launcher::kRondarun,
                           .ranks = options.ranks,
                           .command = {OwnProgram(), "elastic"},
                           .options = {"--min-np", absl::StrCat(options.ranks)}};
  request.command.insert(request.command.end(), words.begin(), words.end());
  RONDA_ASSIGN_OR_RETURN(const LaunchCommand command, PlanLaunch(request, FindInstalledProgram()));
  const double before = TellCoreDistance("before");
  const Table table = TableOfEndings();
  std::fputs(absl::StrFormat("# %d ranks; %d tensors, %s a step\n%s", options.ranks, options.tensors,
                             BytesText(options.bytes), table.Header())
                 .c_str(),
             stdout);
  absl::Status problem;
  const absl::StatusOr<int> exit_code = ShowLaunch(command, [&](const OutputMessage& message) {
    absl::StatusOr<ResultRow> row = DecodeRow(message.text);
    problem.Update(row.status());
    if (!row.ok()) return;
    std::fputs(table.RowOf(*row).c_str(), stdout);
    results->Add(*std::move(row));
  });
  RONDA_RETURN_IF_ERROR(exit_code.status());
  RONDA_RETURN_IF_ERROR(problem);
  if (*exit_code != 0) return absl::InternalError(absl::StrCat("the job failed with exit code ", *exit_code));
  results->SetCoreDistance(before, TellCoreDistance("after"));
  return absl::OkStatus();
}

}  // namespace ronda::bench
