// SPDX-License-Identifier: Apache-2.0

#include "bench/step/implementations.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/ronda.hpp"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

ronda_bench_call InPlaceSum(float* data, size_t count) {
  return {.op = RONDA_BENCH_ALLREDUCE, .dtype = RONDA_BENCH_FLOAT32, .input = data, .output = data, .count = count};
}

// Reduces each gradient with a separate blocking call to the peer, as soon as the gradient is ready. Thread-compatible.
class PeerLoop : public GradientExchange {
 public:
  // Every rank must call Create(). `gradients` and `peer` must outlive the exchange. Errors: the peer's.
  static absl::StatusOr<std::unique_ptr<PeerLoop>> Create(Peer* peer, ProcessGroup* group, Gradients* gradients) {
    std::map<size_t, int> fastest;  // by count: tensors of one size share the result of the trials
    std::vector<std::unique_ptr<PeerCall>> calls;
    for (size_t i = 0; i < gradients->size(); ++i) {
      const auto count = static_cast<size_t>(gradients->count(i));
      const ronda_bench_call call = InPlaceSum(gradients->data(i), count);
      if (fastest.count(count) == 0) {
        RONDA_ASSIGN_OR_RETURN(fastest[count], peer->FastestAlgorithm(call, group));
      }
      RONDA_ASSIGN_OR_RETURN(calls.emplace_back(), peer->Prepare(call, fastest[count]));
    }
    return std::unique_ptr<PeerLoop>(new PeerLoop(std::move(calls)));
  }

  void Ready(size_t parameter) override { calls_[parameter]->Run(); }
  void Finish() override {}

 private:
  explicit PeerLoop(std::vector<std::unique_ptr<PeerCall>> calls) : calls_(std::move(calls)) {}

  const std::vector<std::unique_ptr<PeerCall>> calls_;  // of each gradient
};

// Reduces all gradients with a single call to the peer, once the last gradient is ready. Copies the gradients into one
// buffer, and the results back. Thread-compatible.
class PeerFlat : public GradientExchange {
 public:
  // As PeerLoop::Create.
  static absl::StatusOr<std::unique_ptr<PeerFlat>> Create(Peer* peer, ProcessGroup* group, Gradients* gradients) {
    size_t count = 0;
    for (size_t i = 0; i < gradients->size(); ++i) count += static_cast<size_t>(gradients->count(i));
    std::unique_ptr<PeerFlat> flat(new PeerFlat(gradients, std::vector<float>(count)));
    const ronda_bench_call call = InPlaceSum(flat->buffer_.data(), count);
    RONDA_ASSIGN_OR_RETURN(const int fastest, peer->FastestAlgorithm(call, group));
    RONDA_ASSIGN_OR_RETURN(flat->call_, peer->Prepare(call, fastest));
    return flat;
  }

  void Ready(size_t) override {}

  void Finish() override {
    float* next = buffer_.data();
    for (size_t i = 0; i < gradients_->size(); ++i) next = std::copy_n(gradients_->data(i), gradients_->count(i), next);
    call_->Run();
    const float* result = buffer_.data();
    for (size_t i = 0; i < gradients_->size(); ++i) {
      std::copy_n(result, gradients_->count(i), gradients_->data(i));
      result += gradients_->count(i);
    }
  }

 private:
  PeerFlat(Gradients* gradients, std::vector<float> buffer) : gradients_(gradients), buffer_(std::move(buffer)) {}

  Gradients* const gradients_;
  std::vector<float> buffer_;
  std::unique_ptr<PeerCall> call_;
};

// Averages gradients as ronda::DistributedOptimizer does: announces each gradient when it is ready, and then waits for
// all results. The calling thread must be a rank that has joined its job. Throws ronda::Error. Thread-compatible.
class RondaExchange : public GradientExchange {
 public:
  // `gradients` are the gradients of `model`, and must outlive the exchange.
  RondaExchange(const ModelShapes& model, const Gradients& gradients, WireFormat wire)
      : reducer_(TensorsOf(model, gradients), {.op = Op::Average, .compression = static_cast<Compression>(wire)}) {}

  void Ready(size_t parameter) override { reducer_.gradient_ready(parameter); }
  void Finish() override {
    reducer_.try_step_with([] {}).throw_if_error();
  }

  // Returns how many reports this rank has sent, plus how many lists it has received.
  int64_t control_messages() override {
    const ronda_statistics so_far = statistics();
    return static_cast<int64_t>(so_far.reports_sent + so_far.lists_received);
  }

 private:
  static std::vector<Tensor> TensorsOf(const ModelShapes& model, const Gradients& gradients) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      const Parameter& parameter = model.parameters[i];
      tensors.push_back(tensor(absl::StrCat("gradient/", parameter.name), gradients.data(i), parameter.shape));
    }
    return tensors;
  }

  GradientReducer reducer_;
};

// Returns the Options for a job with `setting`.
Options OptionsOf(const Setting& setting) {
  Options options;
  options.cycle_time = Options::Seconds(absl::ToDoubleSeconds(setting.cycle_time));
  options.fusion_threshold = static_cast<int64_t>(setting.fusion_threshold);
  return options;
}

// Sets the environment variables for the parts of `setting` that the job's Options do not cover. The destructor
// restores the environment. Thread-compatible; no other thread may access the environment meanwhile.
class SettingEnvironment {
 public:
  explicit SettingEnvironment(const Setting& setting) {
    if (const char* const value = std::getenv(kLockVariable)) before_ = value;
    if (setting.locking == ScheduleLocking::kOff) setenv(kLockVariable, "0", kOverwrite);
  }
  ~SettingEnvironment() {
    if (before_.has_value()) {
      setenv(kLockVariable, before_->c_str(), kOverwrite);
    } else {
      unsetenv(kLockVariable);
    }
  }
  SettingEnvironment(const SettingEnvironment&) = delete;
  SettingEnvironment& operator=(const SettingEnvironment&) = delete;

 private:
  static constexpr char kLockVariable[] = "RONDA_LOCK_AFTER";
  static constexpr int kOverwrite = 1;

  std::optional<std::string> before_;
};

class ComputeImplementation : public StepImplementation {
 public:
  explicit ComputeImplementation(const StepContext& context) : context_(context) {}

  std::string name() const override { return "compute only"; }

  BlockResult RunBlock(Checking) override {
    NoExchange exchange;
    context_.rank.group.Barrier();
    return context_.loop.Run(&exchange, &context_.gradients, nullptr);
  }

 private:
  const StepContext context_;
};

class PeerImplementation : public StepImplementation {
 public:
  PeerImplementation(std::string name, std::unique_ptr<GradientExchange> exchange, const StepContext& context)
      : name_(std::move(name)), exchange_(std::move(exchange)), context_(context) {}

  std::string name() const override { return name_; }

  BlockResult RunBlock(Checking checking) override {
    const StepLoop::Check check = {.rank = context_.rank.group.rank(), .ranks = context_.rank.group.size()};
    context_.rank.group.Barrier();
    return context_.loop.Run(exchange_.get(), &context_.gradients, checking == Checking::kOn ? &check : nullptr);
  }

 private:
  const std::string name_;
  const std::unique_ptr<GradientExchange> exchange_;
  const StepContext context_;
};

// Runs a block on the calling thread, which must be a rank that has joined its job.
BlockResult RunAsRank(const StepContext& context, const Setting& setting, Checking checking, Gradients* gradients) {
  RondaExchange exchange(context.model, *gradients, setting.wire);
  const StepLoop::Check check = {
      .rank = ronda::rank(), .ranks = ronda::size(), .expected = Gradients::Expected::kAverage, .wire = setting.wire};
  return context.loop.Run(&exchange, gradients, checking == Checking::kOn ? &check : nullptr);
}

// Measures Ronda in a job whose ranks are the benchmark's processes.
class ProcessImplementation : public StepImplementation {
 public:
  ProcessImplementation(const Setting& setting, const StepContext& context) : setting_(setting), context_(context) {}

  std::string name() const override { return "ronda"; }
  const Setting* setting() const override { return &setting_; }

  BlockResult RunBlock(Checking checking) override {
    const SettingEnvironment environment(setting_);
    ronda::init(OptionsOf(setting_));
    BlockResult result = RunAsRank(context_, setting_, checking, &context_.gradients);
    ronda::shutdown();
    return result;
  }

 private:
  const Setting setting_;
  const StepContext context_;
};

// Measures Ronda in a job whose ranks are threads of the first process; the other processes wait.
class ThreadImplementation : public StepImplementation {
 public:
  ThreadImplementation(const Setting& setting, const StepContext& context) : setting_(setting), context_(context) {
    if (!context.rank.group.is_first()) return;
    for (int i = 1; i < context.rank.group.size(); ++i) others_.push_back(std::make_unique<Gradients>(context.model));
  }

  std::string name() const override { return "ronda"; }
  const Setting* setting() const override { return &setting_; }

  BlockResult RunBlock(Checking checking) override {
    if (context_.rank.group.is_first()) {
      const SettingEnvironment environment(setting_);
      ronda::run_threads(
          context_.rank.group.size(), [&] { RunThread(checking); }, OptionsOf(setting_));
    }
    context_.rank.group.Barrier();
    const MutexLock lock(&mutex_);
    slowest_.step_ms.resize(static_cast<size_t>(context_.loop.steps()));  // zeros in a process without ranks
    return std::exchange(slowest_, {});
  }

 private:
  void RunThread(Checking checking) {
    const int rank = ronda::rank();
    Gradients* const gradients = rank == 0 ? &context_.gradients : others_[static_cast<size_t>(rank) - 1].get();
    const BlockResult own = RunAsRank(context_, setting_, checking, gradients);
    const MutexLock lock(&mutex_);
    slowest_.step_ms.resize(own.step_ms.size());
    for (size_t i = 0; i < own.step_ms.size(); ++i) {
      slowest_.step_ms[i] = std::max(slowest_.step_ms[i], own.step_ms[i]);
    }
    slowest_.control_messages += own.control_messages;
    slowest_.wrong += own.wrong;
  }

  const Setting setting_;
  const StepContext context_;
  std::vector<std::unique_ptr<Gradients>> others_;  // of ranks 1 and up, in the first process
  Mutex mutex_;
  BlockResult slowest_ ABSL_GUARDED_BY(mutex_);  // of each step of the running block
};

}  // namespace

std::unique_ptr<StepImplementation> ComputeOnly(const StepContext& context) {
  return std::make_unique<ComputeImplementation>(context);
}

std::unique_ptr<StepImplementation> RondaWith(const Setting& setting, const StepContext& context) {
  if (setting.backend == kInProcess) return std::make_unique<ThreadImplementation>(setting, context);
  return std::make_unique<ProcessImplementation>(setting, context);
}

absl::StatusOr<std::vector<std::unique_ptr<StepImplementation>>> FormsOf(Peer* peer, const StepContext& context) {
  std::vector<std::unique_ptr<StepImplementation>> forms;
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<PeerLoop> loop,
                         PeerLoop::Create(peer, &context.rank.group, &context.gradients));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<PeerFlat> flat,
                         PeerFlat::Create(peer, &context.rank.group, &context.gradients));
  const std::string name = peer->info().name;
  forms.push_back(std::make_unique<PeerImplementation>(name + " per tensor", std::move(loop), context));
  forms.push_back(std::make_unique<PeerImplementation>(name + " flat", std::move(flat), context));
  return forms;
}

}  // namespace ronda::bench
