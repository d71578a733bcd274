// SPDX-License-Identifier: Apache-2.0

// Trains LeNet on MNIST digits with libtorch, in parallel on all ranks. Each rank takes its share of every batch, the
// gradients are averaged over the ranks, and all ranks apply the same update (synchronous SGD). The code that deals
// with ranks is in Train(), and in ShareOf(), Accuracy() and RunJob() of digits.h.
#include <torch/torch.h>

#include <iostream>
#include <string>
#include <vector>

#include "client/ronda/torch.hpp"
#include "client/ronda/training.hpp"
#include "examples/lenet_mnist/program.h"
#include "examples/lenet_mnist/reporter.h"
#include "examples/torch_lenet/digits.h"
#include "examples/torch_lenet/flags.h"

namespace torch_lenet {
namespace {

namespace nn = torch::nn;

// LeCun et al., "Gradient-based learning applied to document recognition", 1998, figure 2, with max-pooling and ReLU.
struct LeNetImpl : nn::Module {
  at::Tensor forward(const at::Tensor& images) {
    at::Tensor planes = torch::max_pool2d(torch::relu(conv1->forward(images)), 2);
    planes = torch::max_pool2d(torch::relu(conv2->forward(planes)), 2);
    return fc3->forward(torch::relu(fc2->forward(torch::relu(fc1->forward(planes.flatten(1))))));
  }

  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(6, 16, 5));
  nn::Linear fc1 = register_module("fc1", nn::Linear(400, 120));
  nn::Linear fc2 = register_module("fc2", nn::Linear(120, 84));
  nn::Linear fc3 = register_module("fc3", nn::Linear(84, 10));
};
TORCH_MODULE(LeNet);

void Train(const Flags& flags, const Digits& digits, LeNet& net, lenet::Reporter& reporter) {
  const std::int64_t share = ShareOf(flags.batch_size, *digits.size());
  ronda::torch::DistributedSampler sampler = SamplerOf(digits, flags.seed);
  const auto loader = LoaderOf(digits, sampler, share);
  const auto steps = static_cast<std::int64_t>(*digits.size()) / flags.batch_size;  // per epoch
  const auto rate = ronda::training::LearningRate(flags.learning_rate).linear(steps * flags.epochs);

  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(flags.learning_rate).momentum(0.9));
  ronda::torch::DistributedOptimizer optimizer(sgd, net->named_parameters());
  ronda::torch::broadcast_parameters(net);  // all ranks get rank 0's random weights
  ronda::torch::broadcast_optimizer_state(sgd);

  for (std::int64_t epoch = 0; epoch < flags.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    ronda::training::Meters meters;
    lenet::Reporter::Progress at;
    at.epoch = static_cast<std::size_t>(epoch + 1);
    at.epochs = static_cast<std::size_t>(flags.epochs);
    at.steps = static_cast<std::size_t>(steps);
    EpochClock clock(at, flags.batch_size);
    std::int64_t step = epoch * steps;
    for (const Example& batch : *loader) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::cross_entropy_loss(net->forward(batch.data), batch.target);
      loss.backward();  // each gradient travels while those of earlier layers are computed
      sgd.param_groups()[0].options().set_lr(rate.at(step++));
      optimizer.step();
      meters.average("loss").add(loss.item<double>());
      clock.StepDone(meters.average("loss").value(), &reporter);
    }
    clock.EpochDone(meters.reduce().at("loss"), &reporter);
  }
}

int Main(const std::vector<std::string>& arguments) {
  return lenet::ExitCodeOf("torch_lenet", [&] {
    Flags flags;
    const std::vector<lenet::Flag> table = FlagsOf(&flags);
    if (!lenet::ReadFlags(table, arguments)) {
      std::cout << lenet::HelpText(
          "Trains LeNet on MNIST digits with libtorch, on all ranks of the job it is started in:\n"
          "  rondarun -np 2 torch_lenet [flags]\n\n",
          table);
      return;
    }
    RunJob("LeNet with libtorch", flags, [&](const Digits& training, const Digits& test, lenet::Reporter& reporter) {
      LeNet net;
      Train(flags, training, net, reporter);
      return Accuracy(test, net);
    });
  });
}

}  // namespace
}  // namespace torch_lenet

int main(int argc, char** argv) { return torch_lenet::Main({argv + 1, argv + argc}); }
