// SPDX-License-Identifier: Apache-2.0

// Compares DistributedDataParallel with a single process that has the whole batch.
#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/libtorch/small_net.h"

namespace {

using ::ronda::torch::DistributedDataParallel;
using ::small::LossOfShare;
using ::small::LossOfWhole;
using ::small::Net;
using ::testing::HasSubstr;

using Options = ronda::torch::DistributedDataParallelOptions;
using Sgd = torch::optim::SGD;

template <class Loss>
void Train(torch::optim::Optimizer& optimizer, const Loss& loss) {
  optimizer.zero_grad();
  loss().backward();
  optimizer.step();
}

TEST(LibtorchDataParallelTest, TrainsAsOneProcess) {
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [] {
      Net net(ronda::rank()), expected(0);
      DistributedDataParallel model(net);
      torch::optim::Adam own(net->parameters(), 0.01), reference(expected->parameters(), 0.01);
      for (int step = 0; step < 5; ++step) {
        Train(own, [&] { return LossOfShare(model, step); });
        Train(reference, [&] { return LossOfWhole(expected, step); });
      }
      small::ExpectSame(*net, *expected, 1e-4);
    });
  }
}

TEST(LibtorchDataParallelTest, GradientsAreAveragedWhenBackwardReturns) {
  ronda::run_threads(2, [] {
    const auto layer = std::make_shared<torch::nn::LinearImpl>(2, 1);
    DistributedDataParallel model(layer);
    model(at::full({1, 2}, ronda::rank() + 1.0f)).sum().backward();
    EXPECT_TRUE(layer->weight.grad().equal(at::full({1, 2}, 1.5f))) << layer->weight.grad();
    // If the program does not clear the gradients, the next backward pass adds to them, as in a single process.
    model(at::full({1, 2}, ronda::rank() + 1.0f)).sum().backward();
    EXPECT_TRUE(layer->weight.grad().equal(at::full({1, 2}, 3.0f))) << layer->weight.grad();
  });
}

TEST(LibtorchDataParallelTest, ParametersMayGetAnotherDtype) {
  ronda::run_threads(2, [] {
    const auto layer = std::make_shared<torch::nn::LinearImpl>(2, 1);
    DistributedDataParallel model(layer);
    for (const at::ScalarType type : {at::kDouble, at::kBFloat16, at::kFloat}) {
      layer->to(type);
      layer->weight.mutable_grad() = at::Tensor();
      model(at::full({1, 2}, ronda::rank() + 1, type)).sum().backward();
      EXPECT_TRUE(layer->weight.grad().equal(at::full({1, 2}, 1.5, type))) << layer->weight.grad();
    }
  });
}

TEST(LibtorchDataParallelTest, WithoutSynchronizationPassesAddUp) {
  ronda::run_threads(2, [] {
    Net net, expected;
    DistributedDataParallel model(net);
    Sgd own(net->parameters(), 0.1), reference(expected->parameters(), 0.1);
    for (int step = 0; step < 6; step += 3) {
      own.zero_grad();
      {
        const auto guard = model.no_sync();
        LossOfShare(model, step).backward();
        LossOfShare(model, step + 1).backward();
      }
      LossOfShare(model, step + 2).backward();
      own.step();
      reference.zero_grad();
      for (int pass = step; pass < step + 3; ++pass) LossOfWhole(expected, pass).backward();
      reference.step();
    }
    small::ExpectSame(*net, *expected);
  });
}

// A network of three layers. Each forward pass specifies the layers that it uses.
struct BranchesImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input, const std::vector<int>& used) {
    at::Tensor sum = at::zeros({1});
    for (const int i : used) sum = sum + layers[i]->forward(input).sum();
    return sum;
  }
  std::vector<torch::nn::Linear> layers = {register_module("a", torch::nn::Linear(1, 1)),
                                           register_module("b", torch::nn::Linear(1, 1)),
                                           register_module("c", torch::nn::Linear(1, 1))};
};
TORCH_MODULE(Branches);

TEST(LibtorchDataParallelTest, ParametersThatNoRankUsesKeepTheirGradientIfThatIsAskedFor) {
  for (const bool find : {false, true}) {
    ronda::run_threads(2, [find] {
      Branches net;
      Options options;
      options.find_unused_parameters = find;
      DistributedDataParallel model(net, options);
      const at::Tensor input = at::full({1, 1}, 4.0f);
      model(input, ronda::rank() == 0 ? std::vector<int>{0} : std::vector<int>{0, 1}).backward();
      EXPECT_EQ(net->layers[0]->weight.grad().item<float>(), 4) << "of both ranks";
      EXPECT_EQ(net->layers[1]->weight.grad().item<float>(), 2) << "of one of two";
      const at::Tensor of_none = net->layers[2]->weight.grad();
      EXPECT_EQ(of_none.defined(), !find);
      if (!find) {
        EXPECT_EQ(of_none.item<float>(), 0);
      }
      model(input, std::vector<int>{2}).backward();
      EXPECT_EQ(net->layers[2]->weight.grad().item<float>(), 4);
      EXPECT_EQ(net->layers[1]->weight.grad().item<float>(), 2) << "as it was";
    });
  }
}

// Gradients computed without synchronisation are sent with the next backward pass, even if that pass does not use their
// parameter.
TEST(LibtorchDataParallelTest, AGradientFromBeforeTravelsThoughItsParameterIsNotUsed) {
  ronda::run_threads(2, [] {
    Branches net;
    Options options;
    options.find_unused_parameters = true;
    DistributedDataParallel model(net, options);
    {
      const auto guard = model.no_sync();
      model(at::full({1, 1}, 2.0f * ronda::rank()), std::vector<int>{1}).backward();
    }
    model(at::ones({1, 1}), std::vector<int>{0}).backward();
    EXPECT_EQ(net->layers[1]->weight.grad().item<float>(), 1);
  });
}

struct NormNetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) { return norm->forward(input); }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(2));
};
TORCH_MODULE(NormNet);

TEST(LibtorchDataParallelTest, BuffersAreThoseOfTheRootInTraining) {
  ronda::run_threads(4, [] {
    NormNet net, expected;
    Options options;
    options.root = 2;
    DistributedDataParallel model(net, options);
    for (int step = 0; step < 3; ++step) {
      model(small::Numbers({4, 2}, step + ronda::rank()));
      expected->forward(small::Numbers({4, 2}, step + 2));
    }
    if (ronda::rank() == 2) small::ExpectSame(*net, *expected);
    model(small::Numbers({4, 2}, 0));
    expected->forward(small::Numbers({4, 2}, 0));
    small::ExpectSame(*net, *expected);
    net->eval();
    if (ronda::rank() == 0) model(small::Numbers({4, 2}, 0));  // ranks evaluate independently
  });
}

// Rank r has 2 + r batches. In each step, the reference process averages the losses of the ranks that still have a
// batch.
void TrainUnevenly(ronda::Absent absent) {
  ronda::run_threads(3, [absent] {
    Net net, expected;
    Options options;
    options.uneven_inputs = true;
    DistributedDataParallel model(net, options);
    Sgd own(net->parameters(), 0.1), reference(expected->parameters(), 0.1);
    const auto loss = [](auto& some, int rank, int step) {
      const at::Tensor input = small::Inputs(10 * rank + step);
      return torch::mse_loss(some.forward(input), small::Targets(10 * rank + step));
    };
    for (int step = 0; step < 2 + ronda::rank(); ++step) {
      Train(own, [&] { return loss(model, ronda::rank(), step); });
    }
    EXPECT_EQ(model.join(absent), 2);
    for (int step = 0; step < 4; ++step) {
      Train(reference, [&] {
        const int first = step < 2 ? 0 : step - 1;
        at::Tensor sum = at::zeros({});
        for (int rank = first; rank < 3; ++rank) sum = sum + loss(*expected, rank, step);
        return sum / (absent == ronda::Absent::not_counted ? 3 - first : 3);
      });
    }
    small::ExpectSame(*net, *expected);
    Train(own, [&] { return LossOfShare(model, 5); });  // all take part again
  });
}

TEST(LibtorchDataParallelTest, RanksThatRunOutOfDataJoinAndGetTheLastParameters) {
  TrainUnevenly(ronda::Absent::not_counted);
  TrainUnevenly(ronda::Absent::counted_as_zeros);
}

TEST(LibtorchDataParallelTest, WithUnevenInputsBuffersComeFromARankThatHasNotJoined) {
  ronda::run_threads(3, [] {
    NormNet net;
    Options options;
    options.uneven_inputs = true;  // rank 0, the root, joins first
    DistributedDataParallel model(net, options);
    Sgd sgd(net->parameters(), 0.1);
    for (int step = 0; step < 2 + ronda::rank(); ++step) {
      Train(sgd, [&] { return model(small::Numbers({4, 2}, step + ronda::rank())).square().sum(); });
    }
    EXPECT_EQ(model.join(), 2);
    EXPECT_EQ(net->norm->num_batches_tracked.item<int>(), 4);
    const at::Tensor mean = net->norm->running_mean;
    EXPECT_TRUE(ronda::torch::broadcast("mean", mean, 2).equal(mean));
  });
}

TEST(LibtorchDataParallelTest, OptionsReachTheReduction) {
  ronda::run_threads(2, [] {
    const auto layer = std::make_shared<torch::nn::LinearImpl>(2, 1);
    Options options;
    options.reduction.op = ronda::Op::Sum;
    options.reduction.skip_on_overflow = true;
    DistributedDataParallel model(layer, options);
    model(at::full({1, 2}, ronda::rank() + 1.0f)).sum().backward();
    EXPECT_TRUE(layer->weight.grad().equal(at::full({1, 2}, 3.0f)));
    EXPECT_FALSE(model.overflowed());
    const float huge = ronda::rank() == 1 ? std::numeric_limits<float>::infinity() : 1;
    model(at::full({1, 2}, huge)).sum().backward();
    EXPECT_TRUE(model.overflowed());
    EXPECT_EQ(model.overflowed_gradient(), "weight");
    options.reduction.backward_passes_per_step = 2;
    EXPECT_THAT(small::ErrorOf([&] { DistributedDataParallel(layer, options); }), HasSubstr("use no_sync()"));
  });
}

// An identity function whose backward pass fails.
struct FailInBackward : torch::autograd::Function<FailInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    throw std::runtime_error("no derivative");
  }
};

TEST(LibtorchDataParallelTest, ABackwardThatFailsOnOneRankIsFinishedByTheNextForward) {
  ronda::run_threads(2, [] {
    Net net, expected;
    DistributedDataParallel model(net);
    Sgd own(net->parameters(), 0.1), reference(expected->parameters(), 0.1);
    if (ronda::rank() == 0) {
      model(small::Inputs(0));
      const at::Tensor hidden = FailInBackward::apply(at::tanh(net->first->forward(small::Inputs(0))));
      EXPECT_THROW(net->last->forward(hidden).sum().backward(), std::runtime_error);
    } else {
      LossOfShare(model, 0).backward();  // until rank 0 has finished it
    }
    Train(own, [&] { return LossOfShare(model, 1); });
    Train(reference, [&] { return LossOfWhole(expected, 1); });
    small::ExpectSame(*net, *expected);
  });
}

TEST(LibtorchDataParallelTest, ProcessSetsTrainApart) {
  ronda::run_threads(4, [] {
    const ronda::ProcessSet even = ronda::add_process_set({0, 2}), odd = ronda::add_process_set({1, 3});
    const auto layer = std::make_shared<torch::nn::LinearImpl>(1, 1);
    Options options;
    options.root = ronda::rank() % 2;
    options.reduction.call.process_set = ronda::rank() % 2 == 0 ? even : odd;
    DistributedDataParallel model(layer, options);
    model(at::full({1, 1}, 1.0f * ronda::rank())).sum().backward();
    EXPECT_EQ(layer->weight.grad().item<float>(), ronda::rank() % 2 == 0 ? 1 : 2);
  });
}

torch::nn::Sequential CloneableNet() {
  const torch::NoGradGuard no_grad;
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
  double seed = 1;
  for (auto& parameter : net->parameters()) parameter.copy_(0.5 * small::Numbers(parameter.sizes(), seed += 0.1));
  return net;
}

TEST(LibtorchDataParallelTest, ThreadsOfOneProcessTrainAsOneModule) {
  for (const int ranks : small::kRankCounts) {
    torch::nn::Sequential net = CloneableNet(), expected = CloneableNet();
    ronda::torch::data_parallel(ranks, net, [&](auto& model) {
      EXPECT_EQ(ronda::size(), ranks);
      EXPECT_EQ(model.module() == net.ptr(), ronda::rank() == 0);
      Sgd sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 5; ++step) Train(sgd, [&] { return LossOfShare(model, step); });
    });
    Sgd reference(expected->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 5; ++step) {
      Train(reference, [&] { return torch::mse_loss(expected->forward(small::Inputs(step)), small::Targets(step)); });
    }
    small::ExpectSame(*net, *expected, 1e-5);
  }
}

TEST(LibtorchDataParallelTest, CopiesForThreadsAreFrozenWhereTheModuleIs) {
  torch::nn::Sequential net = CloneableNet();
  net[0]->as<torch::nn::Linear>()->weight.requires_grad_(false);
  net[0]->eval();
  ronda::torch::data_parallel(2, net, [](auto& model) {
    EXPECT_FALSE(model->parameters()[0].requires_grad());
    EXPECT_TRUE(model->parameters()[1].requires_grad());
    EXPECT_FALSE((*model.module())[0]->is_training());
    EXPECT_TRUE((*model.module())[1]->is_training());
    EXPECT_EQ(model.gradients().size(), 3u);
  });
}

TEST(LibtorchDataParallelTest, ErrorsOfThreadsComeBack) {
  torch::nn::Sequential net = CloneableNet();
  const auto fail = [](auto& model) {
    if (ronda::rank() == 1) throw std::runtime_error("no more data");
    ronda::barrier();
    (void)model;
  };
  EXPECT_THROW(
      {
        try {
          ronda::torch::data_parallel(2, net, fail);
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "no more data");
          throw;
        }
      },
      std::runtime_error);
  Net without_clone;
  EXPECT_THROW(ronda::torch::data_parallel(2, without_clone, [](auto&) {}), c10::Error);
}

}  // namespace
