// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/harness/model_shapes.h"
#include "bench/harness/results.h"
#include "bench/negotiation/simulated_job.h"
#include "runtime/base/logging.h"

namespace ronda::bench {
namespace {

constexpr char kDescription[] =
    "The cost of agreeing on a training step, for jobs whose ranks are all simulated in this process: every message "
    "is\n"
    "real, but none is sent. Steps:\n"
    "  first         everything is spelled out\n"
    "  cached        the response cache answers\n"
    "  other orders  the same, and every rank submits in an order of its own\n"
    "  one new       the same, with one tensor that was never seen\n"
    "  locked        the schedule is locked: nothing is sent\n"
    "  unlocked      one tensor that was never seen makes all ranks unlock the schedule and negotiate\n"
    "CPU is one thread's time.";

struct NegotiationOptions {
  std::vector<int> ranks = {2, 64, 1024};
  std::string preset = "resnet50";
  int runs = 7;
  Results::Files files;
};

// Runs steps of simulated jobs and reports their costs. Thread-compatible.
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
    Report(ranks, "unlocked", StepWithNew(&job));
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

  // Repeats a run several times, and returns the cost of the run whose cost on rank 0 is the median. If rank 0 does
  // nothing, selects by the cost on another rank.
  template <typename Run>
  NegotiationCost MedianOfRuns(Run run) const {
    std::vector<NegotiationCost> costs;
    for (int i = 0; i < options_.runs; ++i) costs.push_back(run());
    const auto cost_of = [](const NegotiationCost& cost) { return std::pair(cost.coordinator_us, cost.other_us); };
    std::sort(costs.begin(), costs.end(), [&](const auto& a, const auto& b) { return cost_of(a) < cost_of(b); });
    return costs[costs.size() / 2];
  }

  void Report(int ranks, const std::string& step, const NegotiationCost& cost) {
    const auto others = static_cast<int64_t>(ranks) - 1;
    const auto report_bytes = static_cast<int64_t>(cost.report_bytes);
    const auto list_bytes = static_cast<int64_t>(cost.list_bytes);
    ResultRow row = {{"preset", options_.preset},
                     {"tensors", static_cast<int64_t>(gradients_.size())},
                     {"ranks", static_cast<int64_t>(ranks)},
                     {"step", step},
                     {"coordinator_us", cost.coordinator_us},
                     {"coordinator_us_per_rank", cost.coordinator_us / ranks},
                     {"other_us", cost.other_us},
                     {"messages", static_cast<int64_t>(cost.messages_up + cost.messages_down)},
                     {"report_bytes", report_bytes},
                     {"list_bytes", list_bytes},
                     {"received_bytes", report_bytes * others},
                     {"sent_bytes", list_bytes * others}};
    std::fputs(table_.RowOf(row).c_str(), stdout);
    std::fflush(stdout);
    results_->Add(std::move(row));
  }

  const NegotiationOptions options_;
  const std::vector<TensorRequest> gradients_;
  Submitted backward_order_;
  Results* const results_;
  const Table table_{{{.title = "ranks", .width = 6, .field = "ranks"},
                      {.title = "step", .width = 12, .align = Table::Column::Align::kLeft, .field = "step"},
                      {.title = "us", .width = 8, .group = "rank 0", .field = "coordinator_us", .digits = 0},
                      {.title = "us/rank", .width = 8, .group = "rank 0", .field = "coordinator_us_per_rank"},
                      {.title = "us", .width = 8, .group = "another rank", .field = "other_us", .digits = 1},
                      {.title = "messages", .group = "another rank", .field = "messages"},
                      {.title = "report", .width = 9, .group = "bytes", .field = "report_bytes"},
                      {.title = "list", .width = 9, .group = "bytes", .field = "list_bytes"},
                      {.title = "received", .width = 11, .group = "bytes of rank 0", .field = "received_bytes"},
                      {.title = "sent", .width = 11, .group = "bytes of rank 0", .field = "sent_bytes"}}};
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
  const absl::Status written = results.Write(options.files);
  return written.ok() ? 0 : Explain(written);
}

}  // namespace

Command NegotiationCommand() {
  return {
      .name = "negotiation", .summary = "the cost of agreeing on a step, on simulated ranks", .run = RunNegotiation};
}

}  // namespace ronda::bench
