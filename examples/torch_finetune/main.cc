// SPDX-License-Identifier: Apache-2.0

// Fine-tunes a network with libtorch, in parallel on all ranks, as real trainers do. A backbone trained on one task
// (distinguishing even from odd digits) gets a new head, and learns another task (recognising digits). The first layers
// of the backbone are frozen.
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "client/ronda/training.hpp"
#include "examples/lenet_mnist/program.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/torch_lenet/digits.h"
#include "examples/torch_lenet/flags.h"

namespace torch_finetune {
namespace {

namespace nn = torch::nn;
using torch_lenet::Digits;
using torch_lenet::Example;

// A convolution and a normalization, followed by pooling that halves the number of pixels in each direction.
struct BlockImpl : nn::Module {
  BlockImpl(std::int64_t in, std::int64_t out, std::int64_t padding)
      : conv(register_module("conv", nn::Conv2d(nn::Conv2dOptions(in, out, 5).padding(padding).bias(false)))),
        norm(register_module("norm", ronda::torch::SyncBatchNorm(out))) {}

  at::Tensor forward(const at::Tensor& images) {
    return torch::max_pool2d(torch::relu(norm->forward(conv->forward(images))), 2);
  }

  nn::Conv2d conv;
  ronda::torch::SyncBatchNorm norm;
};
TORCH_MODULE(Block);

nn::Sequential HeadFor(std::int64_t classes) {
  return nn::Sequential(nn::Linear(400, 84), nn::ReLU(), nn::Linear(84, classes));
}

struct NetImpl : nn::Module {
  explicit NetImpl(std::int64_t classes) : head(register_module("head", HeadFor(classes))) {}

  at::Tensor forward(const at::Tensor& images) {
    return head->forward(body->forward(stem->forward(images)).flatten(1));
  }

  Block stem = register_module("stem", Block(1, 8, 2));
  Block body = register_module("body", Block(8, 16, 0));
  nn::Sequential head;
};
TORCH_MODULE(Net);

struct Options {
  torch_lenet::Flags flags;
  std::int64_t first_epochs = 1;  // of the first task
  std::int64_t max_steps = 1'000'000;
  double clip = 1;
  std::string checkpoints;  // folder; empty: none
};

// Trains a network for one task. All ranks must make the same calls.
class Stage {
 public:
  struct Task {
    std::string name;  // of its checkpoints
    std::int64_t classes = 10;
    std::int64_t epochs = 1;
  };

  Stage(const Options& options, Task task, const Digits& digits, Net net, lenet::Reporter* reporter)
      : options_(options),
        task_(std::move(task)),
        net_(std::move(net)),
        reporter_(*reporter),
        share_(torch_lenet::ShareOf(options.flags.batch_size, *digits.size())),
        steps_per_epoch_(static_cast<std::int64_t>(*digits.size()) / options.flags.batch_size),
        sampler_(torch_lenet::SamplerOf(digits, options.flags.seed)),
        digits_(digits),
        // The user gives the learning rate for one rank's share of a batch, so it is multiplied by the number of ranks.
        rate_(ronda::training::LearningRate(options.flags.learning_rate)
                  .scale_by(ronda::size())
                  .warm_up(steps_per_epoch_ / 2)
                  .cosine(steps_per_epoch_ * task_.epochs)),
        sgd_(net_->parameters(), torch::optim::SGDOptions(options.flags.learning_rate).momentum(0.9)),
        optimizer_(sgd_, net_->named_parameters()) {  // the optimizer leaves frozen parameters out
    if (!options.checkpoints.empty()) checkpoints_.emplace(CheckpointsFor(options.checkpoints, task_.name));
    ronda::torch::broadcast_parameters(net_);  // all ranks get rank 0's random weights
    Resume();
  }

  // Returns false if the job must stop, or has made the maximum number of steps, before training is complete.
  bool Run() {
    while (steps_done_ < steps_per_epoch_ * task_.epochs) {
      const bool is_whole = RunEpoch(steps_done_ / steps_per_epoch_);
      Save();
      if (!is_whole) return false;
    }
    return true;
  }

 private:
  static ronda::training::CheckpointOptions CheckpointsFor(const std::string& folder, const std::string& name) {
    ronda::training::CheckpointOptions options;
    options.folder = folder;
    options.name = name;
    return options;
  }

  // Makes the remaining steps of an epoch. Returns false if it stopped before the end of the epoch.
  bool RunEpoch(std::int64_t epoch) {
    const std::int64_t done = steps_done_ % steps_per_epoch_;
    sampler_.set_state({epoch, done * options_.flags.batch_size});
    lenet::Reporter::Progress at;
    at.epoch = static_cast<std::size_t>(epoch + 1);
    at.epochs = static_cast<std::size_t>(task_.epochs);
    at.steps = static_cast<std::size_t>(steps_per_epoch_);
    torch_lenet::EpochClock clock(at, options_.flags.batch_size, static_cast<std::size_t>(done));
    ronda::training::Meters meters;
    const auto loader = torch_lenet::LoaderOf(digits_, sampler_, share_);
    for (const Example& batch : *loader) {
      // should_stop() returns the same answer on every rank, so all ranks end after the same step.
      if (ronda::should_stop() || steps_done_ >= options_.max_steps) return false;
      Step(batch, &meters);
      clock.StepDone(meters.average("loss").value(), &reporter_);
    }
    const auto means = meters.reduce();
    clock.EpochDone(means.at("loss"), &reporter_);
    reporter_.Say(task_.name + ": training accuracy " + std::to_string(means.at("accuracy")).substr(0, 5));
    return true;
  }

  void Step(const Example& batch, ronda::training::Meters* meters) {
    const at::Tensor labels = batch.target.remainder(task_.classes);
    optimizer_.zero_grad();
    const at::Tensor scores = net_->forward(batch.data);
    const at::Tensor loss = torch::cross_entropy_loss(scores, labels);
    loss.backward();
    optimizer_.synchronize();  // clipping is applied to the average over the ranks
    ronda::training::clip_by_global_norm(optimizer_.gradients(), options_.clip);
    sgd_.param_groups()[0].options().set_lr(rate_.at(steps_done_++));
    optimizer_.step();
    meters->average("loss").add(loss.item<double>(), static_cast<double>(share_));
    meters->accuracy("accuracy").add(scores.argmax(1).eq(labels).sum().item<std::int64_t>(), share_);
  }

  // Returns the parameters and buffers. The momentum is not among them, because Save() saves it as bytes.
  std::vector<ronda::Tensor> State() const {
    std::vector<ronda::Tensor> state;
    for (const auto& item : net_->named_parameters()) state.push_back(ronda::torch::view(item.key(), item.value()));
    for (const auto& item : net_->named_buffers()) state.push_back(ronda::torch::view(item.key(), item.value()));
    return state;
  }

  void Resume() {
    if (!checkpoints_) return;
    const ronda::training::Resumed resumed = checkpoints_->resume(State());
    for (const std::string& problem : resumed.problems) reporter_.Say(problem);
    if (resumed.step < 0) return;
    steps_done_ = resumed.step;
    std::istringstream momentum(resumed.extra);
    torch::load(sgd_, momentum);
    reporter_.Say(task_.name + " goes on after step " + std::to_string(steps_done_));
  }

  void Save() {
    if (!checkpoints_) return;
    std::ostringstream momentum;
    torch::save(sgd_, momentum);
    checkpoints_->save(steps_done_, State(), momentum.str());
  }

  const Options& options_;
  const Task task_;
  Net net_;
  lenet::Reporter& reporter_;
  const std::int64_t share_;
  const std::int64_t steps_per_epoch_;
  ronda::torch::DistributedSampler sampler_;
  const Digits& digits_;
  const ronda::training::LearningRate rate_;
  torch::optim::SGD sgd_;
  ronda::torch::DistributedOptimizer optimizer_;
  std::optional<ronda::training::Checkpoints> checkpoints_;
  std::int64_t steps_done_ = 0;
};

// Gives the network a new head. The backbone keeps its parameters; its first block is frozen, including the
// normalization statistics.
void GetReadyToFinetune(Net* net) {
  (*net)->head = (*net)->replace_module("head", HeadFor(10));
  for (at::Tensor& parameter : (*net)->stem->parameters()) parameter.requires_grad_(false);
  (*net)->stem->eval();
}

// Returns the accuracy, or nullopt if the job had to stop before the network could be tested.
std::optional<double> Train(const Options& options, const Digits& digits, const Digits& test_digits,
                            lenet::Reporter& reporter) {
  Net net(2);
  if (!Stage(options, {"even", 2, options.first_epochs}, digits, net, &reporter).Run()) return std::nullopt;
  GetReadyToFinetune(&net);
  if (!Stage(options, {"digits", 10, options.flags.epochs}, digits, net, &reporter).Run()) return std::nullopt;
  net->eval();
  return torch_lenet::Accuracy(test_digits, net);
}

int Main(const std::vector<std::string>& arguments) {
  return lenet::ExitCodeOf("torch_finetune", [&] {
    Options options;
    options.flags.epochs = 3;
    options.flags.learning_rate = 0.02;
    std::vector<lenet::Flag> table = torch_lenet::FlagsOf(&options.flags);
    constexpr std::int64_t kMillion = 1'000'000;
    table.push_back(lenet::NumberFlag<std::int64_t>("--first-epochs", 1, kMillion, &options.first_epochs,
                                                    "the same for the first task, even digits and odd ones"));
    table.push_back(
        lenet::NumberFlag<std::int64_t>("--steps", 0, kMillion, &options.max_steps, "stop a task after so many"));
    table.push_back(lenet::NumberFlag<double>("--clip", 1e-9, 1e9, &options.clip, "largest norm of the gradients"));
    table.push_back(lenet::TextFlag("--checkpoints", "a folder", &options.checkpoints,
                                    "folder to save in after each epoch, and to go on from (default: none)"));
    if (!lenet::ReadFlags(table, arguments)) {
      std::cout << lenet::HelpText(
          "Fine-tunes a network for MNIST digits with libtorch, on all ranks of the job it is started in:\n"
          "  rondarun -np 2 torch_finetune [flags]\n\n",
          table);
      return;
    }
    const auto train = [&](const Digits& training, const Digits& test, lenet::Reporter& reporter) {
      return Train(options, training, test, reporter);
    };
    torch_lenet::RunJob("fine-tuning with libtorch", options.flags, train);
  });
}

}  // namespace
}  // namespace torch_finetune

int main(int argc, char** argv) { return torch_finetune::Main({argv + 1, argv + argc}); }
