#include "bench/negotiation/negotiation_command.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/arguments.h"
#include "bench/job.h"
#include "bench/negotiation/simulated_job.h"
#include "bench/results.h"
#include "bench/shapes/presets.h"
#include "bench/table.h"
#include "bench/team.h"
#include "runtime/base/logging.h"

namespace ronda::bench {
namespace {

constexpr char kDescription[] =
    "What agreeing on a training step costs, for jobs whose ranks are all simulated in this process: every message is\n"
    "real, and only its way is left out. Steps:\n"
    "  first         everything is spelled out\n"
    "  cached        the response cache answers\n"
    "  other orders  the same, and every rank submits in an order of its own\n"
    "  one new       the same, with one tensor that was never seen\n"
    "  locked        the schedule is locked: nothing is sent\n"
    "  left          one tensor that was never seen makes all leave the schedule and negotiate\n"
    "CPU is one thread's time.";

struct NegotiationOptions {
  std::vector<int> ranks = {2, 64, 1024};
  std::string preset = "resnet50";
  int runs = 7;
  Results::Files files;
};

// The steps of one job, in turn. Thread-compatible.
class NegotiationBench {
 public:
  NegotiationBench(const NegotiationOptions& options, const ModelShapes& model, Results* results)
      : options_(options), gradients_(GradientsOf(model)), results_(results) {
    for (const TensorRequest& gradient : gradients_) backward_order_.push_back(&gradient);
    std::fputs(table_.Header().c_str(), stdout);
  }

  void Run(int ranks) {
    RunNegotiated(ranks);
    RunLocked(ranks);
  }

 private:
  using Submitted = std::vector<const TensorRequest*>;

  static constexpr int kMostStepsBeforeLock = 100;

  void RunNegotiated(int ranks) {
    SimulatedJob job(ranks, Locking::kOff);
    const auto all = [&](RankId) { return backward_order_; };
    Report(ranks, "first", job.Step(all));
    Report(ranks, "cached", MedianOfRuns([&] { return job.Step(all); }));
    Report(ranks, "other orders", MedianOfRuns([&] { return job.Step([&](RankId rank) { return Shuffled(rank); }); }));
    Report(ranks, "one new", MedianOfRuns([&] { return StepWithNew(&job); }));
  }

  void RunLocked(int ranks) {
    SimulatedJob job(ranks, Locking::kOn);
    const auto all = [&](RankId) { return backward_order_; };
    for (int i = 0; i < kMostStepsBeforeLock && !job.locked(); ++i) job.Step(all);
    RONDA_CHECK(job.locked());
    Report(ranks, "locked", MedianOfRuns([&] { return job.Step(all); }));
    Report(ranks, "left", StepWithNew(&job));
  }

  NegotiationCost StepWithNew(SimulatedJob* job) {
    const TensorRequest extra = {.name = absl::StrCat("new", new_tensors_++), .shape = {10}};
    Submitted submitted = {&extra};
    submitted.insert(submitted.end(), backward_order_.begin(), backward_order_.end());
    return job->Step([&](RankId) { return submitted; });
  }

  Submitted Shuffled(RankId rank) const {
    Submitted submitted = backward_order_;
    std::shuffle(submitted.begin(), submitted.end(), std::minstd_rand(static_cast<uint32_t>(rank) + 1));
    return submitted;
  }

  // The one with the median cost on rank 0, or where that does nothing, on another rank.
  template <typename Run>
  NegotiationCost MedianOfRuns(Run run) const {
    std::vector<NegotiationCost> costs;
    for (int i = 0; i < options_.runs; ++i) costs.push_back(run());
    const auto cost_of = [](const NegotiationCost& cost) { return std::pair(cost.coordinator_us, cost.other_us); };
    std::sort(costs.begin(), costs.end(), [&](const auto& a, const auto& b) { return cost_of(a) < cost_of(b); });
    return costs[costs.size() / 2];
  }

  void Report(int ranks, const std::string& step, const NegotiationCost& cost) {
    const size_t others = static_cast<size_t>(ranks) - 1;
    std::fputs(
        table_
            .Row({absl::StrCat(ranks), step, Fixed(cost.coordinator_us, 0), Fixed(cost.coordinator_us / ranks, 2),
                  Fixed(cost.other_us, 1), absl::StrCat(cost.messages_up + cost.messages_down),
                  absl::StrCat(cost.report_bytes), absl::StrCat(cost.list_bytes),
                  absl::StrCat(cost.report_bytes * others), absl::StrCat(cost.list_bytes * others)})
            .c_str(),
        stdout);
    std::fflush(stdout);
    results_->Add({{"preset", options_.preset},
                   {"tensors", static_cast<int64_t>(gradients_.size())},
                   {"ranks", static_cast<int64_t>(ranks)},
                   {"step", step},
                   {"coordinator_us", cost.coordinator_us},
                   {"other_us", cost.other_us},
                   {"messages", static_cast<int64_t>(cost.messages_up + cost.messages_down)},
                   {"report_bytes", static_cast<int64_t>(cost.report_bytes)},
                   {"list_bytes", static_cast<int64_t>(cost.list_bytes)},
                   {"received_bytes", static_cast<int64_t>(cost.report_bytes * others)},
                   {"sent_bytes", static_cast<int64_t>(cost.list_bytes * others)}});
  }

  const NegotiationOptions options_;
  const std::vector<TensorRequest> gradients_;
  Submitted backward_order_;
  Results* const results_;
  const Table table_{{{.title = "ranks", .width = 6},
                      {.title = "step", .width = 12, .align = Table::Column::Align::kLeft},
                      {.title = "us", .width = 8, .group = "rank 0"},
                      {.title = "us/rank", .width = 8, .group = "rank 0"},
                      {.title = "us", .width = 8, .group = "another rank"},
                      {.title = "messages", .group = "another rank"},
                      {.title = "report", .width = 9, .group = "bytes"},
                      {.title = "list", .width = 9, .group = "bytes"},
                      {.title = "received", .width = 11, .group = "bytes of rank 0"},
                      {.title = "sent", .width = 11, .group = "bytes of rank 0"}}};
  int new_tensors_ = 0;
};

Flags NegotiationFlags(NegotiationOptions* options) {
  Flags flags("negotiation", kDescription);
  flags.Add({.names = {"-np", "--ranks"}, .value = "LIST", .help = "Sizes of the simulated jobs (2,64,1024)."},
            IntegerList(&options->ranks, {.min = 1, .max = 100000}));
  flags.Add({.names = {"--preset"}, .value = "NAME", .help = "The model whose gradients are agreed on (resnet50)."},
            Choice(&options->preset, PresetNames()));
  flags.Add({.names = {"--runs"}, .value = "N", .help = "Steps of each kind; the median is shown (7)."},
            Integer(&options->runs, {.min = 1, .max = 10000}));
  AddFileFlags(&flags, &options->files);
  return flags;
}

int RunNegotiation(const std::vector<std::string>& words) {
  NegotiationOptions options;
  Flags flags = NegotiationFlags(&options);
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  Results results("negotiation", words);
  NegotiationBench bench(options, *PresetShapes(options.preset), &results);
  for (int ranks : options.ranks) bench.Run(ranks);
  ExitIfError(results.Write(options.files));
  return 0;
}

}  // namespace

Command NegotiationCommand() {
  return {.name = "negotiation", .summary = "what agreeing on a step costs, on simulated ranks", .run = RunNegotiation};
}

}  // namespace ronda::bench
