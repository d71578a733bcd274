// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
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

struct SubmissionOptions {
  JobOptions job;
  size_t bytes = 4096;
  int tensors = 161;
  int steps = 500;
  int rounds = 5;
};

constexpr char kDescription[] =
    "Times how long a trainer's thread takes to hand over a step's gradients, a call for each\n"
    "gradient: members of a prepared group (ronda_group_ready), gradients of a\n"
    "DistributedOptimizer, and allreduces with a handle (ronda_allreduce_async), interleaved.\n"
    "\n"
    "  ronda-bench submission -np 2";

using Nanoseconds = std::chrono::duration<double, std::nano>;

// An optimizer that does nothing.
struct NoOptimizer {
  void step() {}
};

// A way to submit the gradients of a step, and its measured times on this rank.
struct Way {
  std::string name;
  absl::FunctionRef<void(size_t i)> hand_over;
  absl::FunctionRef<void()> finish;    // the step
  std::vector<double> call_ns = {};    // the mean of the calls of each step
  std::vector<double> single_ns = {};  // each call of the last step of each round
};

// Thread-compatible.
class SubmissionRun {
 public:
  SubmissionRun(const SubmissionOptions& options, Rank* rank) : options_(options), rank_(*rank) {
    const size_t count = std::max<size_t>(1, options.bytes / sizeof(float));
    values_.assign(static_cast<size_t>(options.tensors), std::vector<float>(count, 1));
    for (std::vector<float>& values : values_) {
      tensors_.push_back(ronda::tensor(absl::StrCat("layer", tensors_.size(), "/gradient"), values));
    }
    handles_.resize(tensors_.size());
    group_ = ronda::prepare_group("gradients", tensors_);
    optimizer_.emplace(no_optimizer_, tensors_);
  }

  absl::Status Run() {
    Way ways[] = {{.name = "group", .hand_over = announce_, .finish = wait_},
                  {.name = "optimizer", .hand_over = gradient_ready_, .finish = step_},
                  {.name = "handles", .hand_over = submit_, .finish = synchronize_}};
    for (int round = 0; round < options_.rounds; ++round) {
      for (Way& way : ways) RunRound(way);
    }
    Report(ways);
    return absl::OkStatus();
  }

 private:
  void RunRound(Way& way) {
    constexpr int kWarmUp = 50;  // until the job's schedule is locked
    rank_.group.Barrier();
    for (int step = 0; step < kWarmUp + options_.steps; ++step) {
      const auto begin = std::chrono::steady_clock::now();
      for (size_t i = tensors_.size(); i > 0; --i) way.hand_over(i - 1);
      const Nanoseconds took = std::chrono::steady_clock::now() - begin;
      way.finish();
      if (step >= kWarmUp) way.call_ns.push_back(took.count() / static_cast<double>(tensors_.size()));
    }
    TimeSingleCalls(way);
  }

  // Times each call separately. Reading the clock between calls takes time, so the means above are measured without
  // this.
  void TimeSingleCalls(Way& way) {
    auto before = std::chrono::steady_clock::now();
    for (size_t i = tensors_.size(); i > 0; --i) {
      way.hand_over(i - 1);
      const auto after = std::chrono::steady_clock::now();
      way.single_ns.push_back(Nanoseconds(after - before).count());
      before = after;
    }
    way.finish();
  }

  void Report(absl::Span<const Way> ways) {
    const std::string group = "ns a call, of rank 0";
    const Table table({{.title = "by", .width = 9, .align = Table::Column::Align::kLeft, .field = "contestant"},
                       {.title = "steps", .width = 8, .field = "steps"},
                       {.title = "mean of a step", .width = 15, .group = group, .field = "step_ns"},
                       {.title = "median call", .width = 12, .group = group, .field = "median_ns"},
                       {.title = "p90", .width = 8, .group = group, .field = "p90_ns"},
                       {.title = "p99", .width = 8, .group = group, .field = "p99_ns"}});
    rank_.output.Print(
        absl::StrFormat("# %d tensors of %s a step\n%s", options_.tensors, BytesText(options_.bytes), table.Header()));
    for (const Way& way : ways) {
      const Summary steps = Summarize(way.call_ns);
      const Summary calls = Summarize(way.single_ns);
      ResultRow row = {{"measure", "submission"},
                       {"contestant", way.name},
                       {"ranks", int64_t{rank_.group.size()}},
                       {"tensors", int64_t{options_.tensors}},
                       {"bytes", static_cast<int64_t>(options_.bytes)},
                       {"steps", static_cast<int64_t>(steps.count)},
                       {"step_ns", steps.median},
                       {"median_ns", calls.median},
                       {"p90_ns", calls.p90},
                       {"p99_ns", calls.p99}};
      rank_.output.Print(table.RowOf(row));
      rank_.results.Add(std::move(row));
    }
  }

  const SubmissionOptions options_;
  Rank& rank_;
  std::vector<std::vector<float>> values_;
  std::vector<Tensor> tensors_;
  std::vector<Handle> handles_;
  PreparedGroup group_;
  NoOptimizer no_optimizer_;
  std::optional<DistributedOptimizer<NoOptimizer>> optimizer_;
  const std::function<void(size_t)> announce_ = [this](size_t i) { group_.ready(i); };
  const std::function<void()> wait_ = [this] { group_.synchronize(); };
  const std::function<void(size_t)> gradient_ready_ = [this](size_t i) { optimizer_->gradient_ready(i); };
  const std::function<void()> step_ = [this] { optimizer_->step(); };
  const std::function<void(size_t)> submit_ = [this](size_t i) { handles_[i] = ronda::allreduce_async(tensors_[i]); };
  const std::function<void()> synchronize_ = [this] {
    ronda::synchronize_all(handles_);
    for (Handle& handle : handles_) handle = Handle();
  };
};

absl::Status RunOnRank(const SubmissionOptions& options, Rank& rank) {
  ronda::init();
  RONDA_RETURN_IF_ERROR(SubmissionRun(options, &rank).Run());
  ronda::shutdown();
  return absl::OkStatus();
}

int Run(const std::vector<std::string>& words) {
  SubmissionOptions options;
  Flags flags("submission", kDescription);
  AddJobFlags(&flags, &options.job);
  flags.Add({.names = {"--bytes"}, .value = "SIZE", .help = "Of each tensor (4K)."}, Size(&options.bytes));
  flags.Add({.names = {"--tensors"}, .value = "N", .help = "Of each step (161)."},
            Integer(&options.tensors, {.min = 1, .max = 100000}));
  flags.Add({.names = {"--steps"}, .value = "N", .help = "Of each round, after those that warm up (500)."},
            Integer(&options.steps, {.min = 1}));
  flags.Add({.names = {"--rounds"}, .value = "N", .help = "Rounds of interleaved steps (5)."},
            Integer(&options.rounds, {.min = 1, .max = 10000}));
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  return RunJob({.command = "submission", .words = words, .options = options.job},
                [&](Rank& rank) { return RunOnRank(options, rank); });
}

}  // namespace

Command SubmissionCommand() {
  return {.name = "submission", .summary = "the cost of handing over a step's gradients, call by call", .run = Run};
}

}  // namespace ronda::bench
