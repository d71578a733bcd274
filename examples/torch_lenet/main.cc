// Trains LeNet on MNIST digits with libtorch, in parallel on all ranks: each takes its share of every batch, the
// gradients are averaged over the ranks, and all make the same step (synchronous SGD). Everything that concerns ranks
// is in Train() and Accuracy().
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "client/ronda/training.hpp"
#include "examples/lenet_mnist/mnist.h"
#include "examples/lenet_mnist/program.h"
#include "examples/lenet_mnist/reporter.h"
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

using Example = torch::data::Example<>;

// The digits as a dataset of libtorch's: pixels from 0 to 1, and labels.
class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  Digits(const std::string& directory, const std::string& prefix) {
    lenet::MnistImages digits = lenet::LoadMnist(directory, prefix);
    const auto count = static_cast<std::int64_t>(digits.size());
    images_ = torch::from_blob(digits.pixels.data(), {count, 1, 28, 28}, at::kByte).to(at::kFloat) / 255;
    labels_ = torch::from_blob(digits.labels.data(), {count}, at::kByte).to(at::kLong);
  }

  Example get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {images_[i], labels_[i]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels_.size(0)); }

  // All of them.
  const at::Tensor& images() const { return images_; }
  const at::Tensor& labels() const { return labels_; }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

// Batches of this rank's share of the digits.
auto LoaderOf(const Digits& digits, const ronda::torch::DistributedSampler& sampler, std::int64_t batch_size) {
  const auto options = torch::data::DataLoaderOptions(static_cast<std::size_t>(batch_size)).drop_last(true);
  return torch::data::make_data_loader(Digits(digits).map(torch::data::transforms::Stack<>()), sampler, options);
}

// This rank's digits of each step.
std::int64_t ShareOf(std::int64_t batch_size, std::size_t digits) {
  if (batch_size % ronda::size() != 0 || batch_size > static_cast<std::int64_t>(digits)) {
    throw std::invalid_argument("a batch of " + std::to_string(batch_size) + " digits of " + std::to_string(digits) +
                                " cannot be shared equally by " + lenet::RanksText());
  }
  return batch_size / ronda::size();
}

void Train(const Flags& flags, const Digits& digits, LeNet& net, lenet::Reporter& reporter) {
  const std::int64_t share = ShareOf(flags.batch_size, *digits.size());
  ronda::training::DistributedSamplerOptions sampling;
  sampling.seed = flags.seed;
  sampling.tail = ronda::training::Tail::drop;
  ronda::torch::DistributedSampler sampler(*digits.size(), sampling);
  const auto loader = LoaderOf(digits, sampler, share);
  const auto steps = static_cast<std::int64_t>(*digits.size()) / flags.batch_size;  // an epoch
  const auto rate = ronda::training::LearningRate(flags.learning_rate).warm_up(steps / 4).linear(steps * flags.epochs);

  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(flags.learning_rate).momentum(0.9));
  ronda::torch::DistributedOptimizer optimizer(sgd, net->named_parameters());
  ronda::torch::broadcast_parameters(net);  // rank 0's random weights are those of all
  ronda::torch::broadcast_optimizer_state(sgd);

  for (std::int64_t epoch = 0; epoch < flags.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    ronda::training::Meters meters;
    const auto start = std::chrono::steady_clock::now();
    const auto progress = [&](std::int64_t steps_done, double loss) {
      const std::chrono::duration<double> duration = std::chrono::steady_clock::now() - start;
      return lenet::Reporter::Progress{static_cast<std::size_t>(epoch + 1),
                                       static_cast<std::size_t>(flags.epochs),
                                       static_cast<std::size_t>(steps_done),
                                       static_cast<std::size_t>(steps),
                                       loss,
                                       static_cast<double>(steps_done * flags.batch_size) / duration.count()};
    };
    std::int64_t step = 0;
    for (const Example& batch : *loader) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::cross_entropy_loss(net->forward(batch.data), batch.target);
      loss.backward();  // each gradient travels while those of the layers before it are computed
      sgd.param_groups()[0].options().set_lr(rate.at(epoch * steps + step));
      optimizer.step();
      meters.average("loss").add(loss.item<double>());
      reporter.StepDone(progress(++step, meters.average("loss").value()));
    }
    reporter.EpochDone(progress(step, meters.reduce().at("loss")));
  }
}

// Of all test digits, each of which one rank looks at.
double Accuracy(const Digits& digits, LeNet& net) {
  const torch::NoGradGuard no_grad;
  const std::int64_t count = digits.labels().size(0);
  const std::int64_t first = count * ronda::rank() / ronda::size(), end = count * (ronda::rank() + 1) / ronda::size();
  std::int64_t correct = 0;
  for (std::int64_t i = first; i < end; i += 100) {
    const std::int64_t next = std::min(i + 100, end);
    const at::Tensor found = net->forward(digits.images().slice(0, i, next)).argmax(1);
    correct += found.eq(digits.labels().slice(0, i, next)).sum().item<std::int64_t>();
  }
  ronda::allreduce(ronda::tensor("correct", &correct), {ronda::Op::Sum});
  return static_cast<double>(correct) / static_cast<double>(count);
}

void TrainAndTest(const Flags& flags) {
  const auto start = std::chrono::steady_clock::now();
  ronda::init();
  // The ranks of a host share its cores.
  torch::set_num_threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ronda::local_size()));
  torch::manual_seed(flags.seed + static_cast<std::uint64_t>(ronda::rank()));
  const std::string directory = flags.data.empty() ? lenet::DefaultDataDirectory() : flags.data;
  const Digits training_digits(directory, "train"), test_digits(directory, "t10k");
  lenet::Reporter reporter(&std::cout, lenet::ReporterMode());
  reporter.Say("LeNet with libtorch on " + lenet::RanksText() + ", " + std::to_string(*training_digits.size()) +
               " digits in batches of " + std::to_string(flags.batch_size));
  LeNet net;
  Train(flags, training_digits, net, reporter);
  reporter.Say(lenet::AccuracyText(Accuracy(test_digits, net), std::chrono::steady_clock::now() - start));
  ronda::shutdown();
}

int Main(const std::vector<std::string>& arguments) {
  return lenet::ExitCodeOf("torch_lenet", [&] {
    const Flags flags = ParseFlags(arguments);
    if (flags.help) {
      std::cout << Usage();
    } else {
      TrainAndTest(flags);
    }
  });
}

}  // namespace
}  // namespace torch_lenet

int main(int argc, char** argv) { return torch_lenet::Main({argv + 1, argv + argc}); }
