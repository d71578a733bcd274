// SPDX-License-Identifier: Apache-2.0

// This benchmark measures the host CPU time of allreducing a model's gradients in GPU memory, in locked steps:
//
//   export RONDA_CUDA_PLUGIN=.bazel/bin/runtime/cuda/libronda_cuda.so
//   .bazel/bin/programs/rondarun/rondarun -np 2 .bazel/bin/bench/cuda/host_time_bench
//
// It measures the CPU time of the background thread, and of the trainer thread from the first submission until its
// stream waits for the last tensor. A separate column shows the other threads (Ronda's device watch, and threads of
// CUDA and NCCL). Another column shows the elapsed time of a step, until its work on the GPU is done. Ranks that share
// a GPU tell NCCL that they are on different hosts.
//
// Instruction counts are exact; times are not. The command below counts instructions on a fake GPU. It gives each
// tensor one element, because copying real tensors on the fake GPU would take far longer than the measured code:
//
//   valgrind --tool=callgrind --separate-threads=yes .bazel/bin/bench/cuda/host_time_bench --elements 1 --only group
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/cuda/gpu.h"
#include "bench/harness/arguments.h"
#include "bench/harness/launch.h"
#include "bench/harness/model_shapes.h"
#include "bench/harness/results.h"
#include "bench/harness/statistics.h"
#include "client/ronda.hpp"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

struct HostTimeOptions {
  std::string preset = "resnet50";
  int blocks = 11;
  int steps = 20;                    // of a block
  int warm_up = 40;                  // steps before the first block
  int elements = 0;                  // of each tensor; 0: as in the model
  std::string only;                  // the only way to submit; empty: all ways
  std::string places = "allocated";  // where the gradients lie
};

constexpr char kAdjacent[] = "adjacent";

GpuGradients::Places PlacesOf(const HostTimeOptions& options) {
  return options.places == kAdjacent ? GpuGradients::Places::kAdjacent : GpuGradients::Places::kAllocated;
}

// How a step submits its tensors.
struct Submission {
  enum Way { kOneByOne, kPrepared, kGrouped } way;
  const char* flag;
  const char* name;
};
constexpr Submission kSubmissions[] = {{Submission::kOneByOne, "one", "one by one"},
                                       {Submission::kPrepared, "prepared", "one by one, prepared"},
                                       {Submission::kGrouped, "group", "as a group"}};

// The cost of one step in microseconds: CPU times, and the elapsed time.
struct HostTime {
  double trainer = 0;
  double coordinator = 0;
  double both = 0;
  double others = 0;
  double elapsed = 0;
  double buckets = 0;  // their number
};

// Returns the threads that have started since the list `before` was made.
std::vector<pid_t> ThreadsSince(const std::vector<pid_t>& before) {
  const std::vector<pid_t> now = Threads();
  std::vector<pid_t> added;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(added));
  return added;
}

// Joins a job, and runs steps that average all tensors. A step submits the tensors either as one group, which forms one
// bucket, or one by one, in which case the locked schedule forms the buckets. Tensors that are submitted one by one may
// belong to a prepared group. Every rank must make the same calls. Throws ronda::Error.
class Steps {
 public:
  Steps(Submission::Way way, const ModelShapes& model, const GpuGradients& gradients, Gpu* gpu)
      : way_(way), gpu_(*gpu) {
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      tensors_.push_back(
          cuda_tensor(model.parameters[i].name, gradients.tensors()[i].data, model.parameters[i].shape, gpu->stream()));
    }
    handles_.reserve(tensors_.size());
    const std::vector<pid_t> before = Threads();
    Options options;
    options.fusion_threshold = static_cast<std::int64_t>(2 * gradients.bytes());
    init(options);
    coordinator_ = ThreadsSince(before);
    if (way_ == Submission::kPrepared) prepared_ = prepare_group("gradients", tensors_);
  }
  ~Steps() {
    handles_.clear();
    prepared_ = PreparedGroup();
    static_cast<void>(try_shutdown());  // an earlier error has already been thrown
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // Runs `steps` steps, and returns their mean cost.
  absl::StatusOr<HostTime> Run(int steps) {
    const absl::Duration start = MonotonicTime();
    const absl::Duration process = CpuTimeOfProcess();
    const absl::Duration thread = CpuTimeOfThisThread();
    const absl::Duration coordinator = CoordinatorTime();
    absl::Duration trainer;
    for (int step = 0; step < steps; ++step) {
      const absl::Duration begin = CpuTimeOfThisThread();
      Submit();
      Await();
      trainer += CpuTimeOfThisThread() - begin;
      RONDA_RETURN_IF_ERROR(gpu_.Finish());
    }
    const auto mean = [steps](absl::Duration total) { return absl::ToDoubleMicroseconds(total) / steps; };
    const absl::Duration coordinators = CoordinatorTime() - coordinator;
    const absl::Duration others = CpuTimeOfProcess() - process - coordinators - (CpuTimeOfThisThread() - thread);
    return HostTime{.trainer = mean(trainer),
                    .coordinator = mean(coordinators),
                    .both = mean(trainer + coordinators),
                    .others = mean(others),
                    .elapsed = mean(MonotonicTime() - start)};
  }

 private:
  void Submit() {
    switch (way_) {
      case Submission::kOneByOne:
        for (const Tensor& tensor : tensors_) handles_.push_back(allreduce_async(tensor));
        break;
      case Submission::kPrepared:
        for (std::size_t i = 0; i < tensors_.size(); ++i) prepared_.ready(i);
        break;
      case Submission::kGrouped:
        handles_ = grouped_allreduce_async("gradients", tensors_);
        break;
    }
  }

  // Makes the stream wait for all tensors.
  void Await() {
    if (way_ == Submission::kPrepared) return prepared_.synchronize_on(gpu_.stream());
    for (const Handle& handle : handles_) handle.synchronize_on(gpu_.stream());
    handles_.clear();
  }

  absl::Duration CoordinatorTime() const {
    absl::Duration total;
    for (const pid_t thread : coordinator_) total += CpuTimeOf(thread);
    return total;
  }

  const Submission::Way way_;
  Gpu& gpu_;
  std::vector<Tensor> tensors_;
  std::vector<Handle> handles_;
  PreparedGroup prepared_;
  std::vector<pid_t> coordinator_;  // the threads that init() has started
};

// Computes the buckets per step from two snapshots of the statistics. Errors: INTERNAL if a control message was sent
// between the snapshots.
absl::StatusOr<double> BucketsOfLockedSteps(const ronda_statistics& before, const ronda_statistics& after, int steps) {
  if (after.reports_sent != before.reports_sent) {
    return absl::InternalError(absl::StrCat("not a steady state: ", after.reports_sent - before.reports_sent,
                                            " control messages in ", steps, " steps"));
  }
  return static_cast<double>(after.buckets_scheduled - before.buckets_scheduled) / steps;
}

// Returns the median of `part` over the blocks, on the rank whose median is largest.
double MedianOf(double HostTime::*part, const std::vector<HostTime>& blocks) {
  std::vector<double> values;
  for (const HostTime& block : blocks) values.push_back(block.*part);
  double median = Median(std::move(values));
  allreduce(tensor("median", &median), {Op::Max});
  return median;
}

absl::StatusOr<HostTime> Measure(const HostTimeOptions& options, Steps* steps) {
  RONDA_RETURN_IF_ERROR(steps->Run(options.warm_up).status());
  const ronda_statistics before = statistics();
  if (rank() == 0) {
    std::printf("# warm: %d steps, %lld buckets of a locked schedule\n", options.warm_up,
                static_cast<long long>(before.buckets_scheduled));
    std::fflush(stdout);  // run.sh waits for this line
  }
  std::vector<HostTime> blocks;
  for (int i = 0; i < options.blocks; ++i) {
    RONDA_ASSIGN_OR_RETURN(blocks.emplace_back(), steps->Run(options.steps));
  }
  RONDA_ASSIGN_OR_RETURN(const double buckets,
                         BucketsOfLockedSteps(before, statistics(), options.blocks * options.steps));
  return HostTime{.trainer = MedianOf(&HostTime::trainer, blocks),
                  .coordinator = MedianOf(&HostTime::coordinator, blocks),
                  .both = MedianOf(&HostTime::both, blocks),
                  .others = MedianOf(&HostTime::others, blocks),
                  .elapsed = MedianOf(&HostTime::elapsed, blocks),
                  .buckets = buckets};
}

// Returns the tensors of the preset. If `elements` is not 0, each tensor has `elements` elements.
absl::StatusOr<ModelShapes> Shapes(const HostTimeOptions& options) {
  RONDA_ASSIGN_OR_RETURN(ModelShapes model, PresetShapes(options.preset));
  if (options.elements == 0) return model;
  for (Parameter& parameter : model.parameters) parameter.shape = {options.elements};
  return model;
}

absl::Status Run(const HostTimeOptions& options, const LaunchedRank& launched, Gpu* gpu) {
  RONDA_ASSIGN_OR_RETURN(const ModelShapes model, Shapes(options));
  RONDA_ASSIGN_OR_RETURN(const GpuGradients gradients, GpuGradients::Create(model, gpu, PlacesOf(options)));
  RONDA_RETURN_IF_ERROR(gpu->Finish());
  const Table table({{.title = "CPU time of the host", .width = 22, .align = Table::Column::Align::kLeft},
                     {.title = "trainer us", .width = 11},
                     {.title = "coordinator us", .width = 11},
                     {.title = "both us", .width = 11},
                     {.title = "other threads us", .width = 11},
                     {.title = "elapsed us", .width = 11},
                     {.title = "buckets", .width = 7}});
  std::string text =
      absl::StrCat("# ", gpu->name(), ", ", launched.size, launched.size == 1 ? " rank" : " ranks", "; medians of ",
                   options.blocks, " blocks of ", options.steps, " steps\n", table.Header());
  std::string aims;
  for (const Submission& submission : kSubmissions) {
    if (!options.only.empty() && options.only != submission.flag) continue;
    Steps steps(submission.way, model, gradients, gpu);
    RONDA_ASSIGN_OR_RETURN(const HostTime time, Measure(options, &steps));
    absl::StrAppend(&text,
                    table.Row({submission.name, Fixed(time.trainer, 1), Fixed(time.coordinator, 1), Fixed(time.both, 1),
                               Fixed(time.others, 1), Fixed(time.elapsed, 1), Fixed(time.buckets, 1)}));
    absl::StrAppend(
        &aims,
        AimLine(absl::StrCat("CPU time of an allreduce of ", model.name, "'s ", model.parameters.size(), " tensors, ",
                             submission.name, ", ", launched.size, launched.size == 1 ? " rank" : " ranks"),
                absl::StrCat(Fixed(time.both, 1), " us, in ", Fixed(time.buckets, 1), " buckets"), "under 60 us"));
  }
  if (launched.rank == 0) std::fputs(absl::StrCat(text, aims, "\n").c_str(), stdout);
  return absl::OkStatus();
}

// By default, NCCL refuses two ranks of one host that share a GPU.
void TellNcclOfDifferentHosts(const LaunchedRank& launched) {
  constexpr int kKeep = 0;
  setenv("NCCL_HOSTID", absl::StrCat("rank-", launched.rank).c_str(), kKeep);
}

absl::Status RunOnRank(const HostTimeOptions& options) {
  RONDA_ASSIGN_OR_RETURN(const std::optional<LaunchedRank> found, FindLaunchedRank(ProcessVariables(), /*parent=*/0));
  const LaunchedRank launched = found.value_or(LaunchedRank());
  const absl::StatusOr<std::unique_ptr<Gpu>> gpu = Gpu::Open(launched.rank);
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return absl::OkStatus();
  }
  if ((*gpu)->devices() < launched.size) TellNcclOfDifferentHosts(launched);
  try {
    return Run(options, launched, gpu->get());
  } catch (const Error& error) {
    return absl::InternalError(error.what());
  }
}

int Main(const std::vector<std::string>& words) {
  HostTimeOptions options;
  constexpr IntegerRange kPositive = {.min = 1, .max = 1000000};
  Flags flags("host_time_bench", "The host's CPU time for an allreduce of a model's gradients on a GPU.");
  flags.Add({.names = {"--preset"}, .value = "MODEL", .help = "Whose gradients (resnet50)."},
            Choice(&options.preset, PresetNames()));
  flags.Add({.names = {"--blocks"}, .value = "N", .help = "Blocks of steps, of which the median counts (11)."},
            Integer(&options.blocks, kPositive));
  flags.Add({.names = {"--steps"}, .value = "N", .help = "Steps of a block (20)."}, Integer(&options.steps, kPositive));
  flags.Add({.names = {"--warm-up"}, .value = "N", .help = "Steps before the first block (40)."},
            Integer(&options.warm_up, kPositive));
  flags.Add({.names = {"--elements"}, .value = "N", .help = "Elements of each tensor (those of the model)."},
            Integer(&options.elements, kPositive));
  flags.Add({.names = {"--places"},
             .value = "PLACES",
             .help = "Where the gradients lie: as an allocator could place them, or adjacent (allocated)."},
            Choice(&options.places, {"allocated", kAdjacent}));
  std::vector<std::string> ways;
  for (const Submission& submission : kSubmissions) ways.emplace_back(submission.flag);
  flags.Add({.names = {"--only"}, .value = "WAY", .help = "One way of submitting the tensors (all)."},
            Choice(&options.only, ways));
  if (const absl::Status parsed = flags.Parse(words); !parsed.ok()) {
    std::fprintf(stderr, "host_time_bench: %s\n", std::string(parsed.message()).c_str());
    return 2;
  }
  if (flags.help_requested()) return std::fputs(flags.Help().c_str(), stdout) < 0 ? 1 : 0;
  const absl::Status status = RunOnRank(options);
  if (!status.ok()) std::fprintf(stderr, "host_time_bench: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ronda::bench

int main(int argc, char** argv) { return ronda::bench::Main({argv + 1, argv + argc}); }
