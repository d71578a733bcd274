// SPDX-License-Identifier: Apache-2.0

// Compares DistributedOptimizer over libtorch's optimizers with a single process that has the whole batch.
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "client/ronda/training.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/libtorch/small_net.h"

namespace {

using ::ronda::torch::DistributedOptimizer;
using ::small::LossOfShare;
using ::small::LossOfWhole;
using ::small::Net;
using ::testing::HasSubstr;
using ::testing::Not;

using Sgd = torch::optim::SGD;

void TrainShare(Net& net, DistributedOptimizer& optimizer, int step) {
  optimizer.zero_grad();
  LossOfShare(*net, step).backward();
  optimizer.step();
}

void TrainWhole(Net& net, torch::optim::Optimizer& optimizer, int step) {
  optimizer.zero_grad();
  LossOfWhole(net, step).backward();
  optimizer.step();
}

// Expects that five steps on several ranks give the same parameters as five steps in one process.
template <class Optimizer, class OptimizerOptions>
void ExpectSameTraining(const OptimizerOptions& inner, const ronda::DistributedOptimizerOptions& options = {},
                        double tolerance = 1e-4) {
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [&] {
      Net net(ronda::rank()), expected(0);
      Optimizer own(net->parameters(), inner), reference(expected->parameters(), inner);
      DistributedOptimizer optimizer(own, net->named_parameters(), options);
      ronda::torch::broadcast_parameters(net);
      for (int step = 0; step < 5; ++step) {
        TrainShare(net, optimizer, step);
        TrainWhole(expected, reference, step);
      }
      SCOPED_TRACE(std::to_string(ronda::size()) + " ranks");
      small::ExpectSame(*net, *expected, tolerance);
    });
  }
}

TEST(LibtorchOptimizerTest, EveryOptimizerTrainsAsInOneProcess) {
  ExpectSameTraining<Sgd>(torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  ExpectSameTraining<torch::optim::Adam>(torch::optim::AdamOptions(0.01));
  ExpectSameTraining<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
  ExpectSameTraining<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01));
  ExpectSameTraining<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01));
}

TEST(LibtorchOptimizerTest, AnOptimizerThatEvaluatesSeveralTimesSeesTheLossOfAllRanks) {
  const auto inner = torch::optim::LBFGSOptions(1).max_iter(4).line_search_fn("strong_wolfe");
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [&] {
      Net net, expected;
      torch::optim::LBFGS own(net->parameters(), inner), reference(expected->parameters(), inner);
      DistributedOptimizer optimizer(own, net->named_parameters());
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = optimizer.step([&] {
          optimizer.zero_grad();
          at::Tensor loss = LossOfShare(*net, step);
          loss.backward();
          return loss;
        });
        const at::Tensor expected_loss = reference.step([&] {
          reference.zero_grad();
          at::Tensor loss = LossOfWhole(expected, step);
          loss.backward();
          return loss;
        });
        small::ExpectClose(loss, expected_loss.detach(), "loss", 1e-4);
      }
      small::ExpectSame(*net, *expected, 1e-3);
    });
  }
}

TEST(LibtorchOptimizerTest, OptionsAreThoseOfTheWrapperForAnyTrainer) {
  const auto sgd = torch::optim::SGDOptions(0.1);
  ronda::DistributedOptimizerOptions grouped;
  grouped.groups = {{"first.bias", "last.weight"}};
  ExpectSameTraining<Sgd>(sgd, grouped);
  ronda::DistributedOptimizerOptions counted;
  counted.group_count = 2;
  ExpectSameTraining<Sgd>(sgd, counted);
  ronda::DistributedOptimizerOptions compressed;
  compressed.compression = ronda::Compression::fp16;
  ExpectSameTraining<Sgd>(sgd, compressed, 2e-3);
  ronda::DistributedOptimizerOptions scaled;
  scaled.prescale = 4;
  scaled.postscale = 0.25;
  scaled.gradient_predivide_factor = 2;
  ExpectSameTraining<Sgd>(sgd, scaled);
}

// An identity function whose backward pass waits until all ranks have reduced the gradients of the following layer.
struct WaitInBackward : torch::autograd::Function<WaitInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    while (ronda::statistics().tensors < 2) std::this_thread::yield();
    return gradients;
  }
};

TEST(LibtorchOptimizerTest, GradientsTravelWhileBackwardGoesOn) {
  ronda::run_threads(2, [] {
    Net net;
    Sgd sgd(net->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    const at::Tensor hidden = WaitInBackward::apply(at::tanh(net->first->forward(small::Inputs(0))));
    net->last->forward(hidden).sum().backward();  // would never end if it waited for the first layer
    optimizer.step();
  });
}

TEST(LibtorchOptimizerTest, ParametersThatOneRankDoesNotUseAreReducedOnAll) {
  ronda::run_threads(2, [] {
    Net net;
    Sgd sgd(net->parameters(), 1);
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    const at::Tensor input = small::Inputs(0);
    const at::Tensor output =
        ronda::rank() == 0 ? net->forward(input).sum() : net->last->forward(at::ones({1, 8})).sum();
    output.backward();
    optimizer.step();
    Net alone;
    alone->forward(input).sum().backward();
    EXPECT_GT(alone->first->weight.grad().abs().max().item<float>(), 0);
    small::ExpectClose(net->first->weight.grad(), alone->first->weight.grad() / 2, "the gradient");
  });
}

TEST(LibtorchOptimizerTest, GradientsMayBeDroppedAndReplaced) {
  ronda::run_threads(2, [] {
    Net net, expected;
    Sgd own(net->parameters(), 0.1), reference(expected->parameters(), 0.1);
    DistributedOptimizer optimizer(own, net->named_parameters());
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::Tensor();
      LossOfShare(*net, step).backward();
      optimizer.step();
      TrainWhole(expected, reference, step);
    }
    small::ExpectSame(*net, *expected);
    LossOfShare(*net, 3).backward();
    net->last->bias.mutable_grad() = at::Tensor();  // in flight
    optimizer.step();
    small::ExpectClose(net->last->bias.detach(), expected->last->bias.detach(), "without a gradient");
  });
}

TEST(LibtorchOptimizerTest, PassesAddUpBeforeTheyTravel) {
  ronda::run_threads(2, [] {
    Net net, expected;
    Sgd own(net->parameters(), 0.1), reference(expected->parameters(), 0.1);
    ronda::DistributedOptimizerOptions options;
    options.backward_passes_per_step = 2;
    DistributedOptimizer optimizer(own, net->named_parameters(), options);
    for (int step = 0; step < 6; step += 2) {
      optimizer.zero_grad();
      LossOfShare(*net, step).backward();
      LossOfShare(*net, step + 1).backward();
      optimizer.step();
      reference.zero_grad();
      (LossOfWhole(expected, step) + LossOfWhole(expected, step + 1)).backward();
      reference.step();
    }
    small::ExpectSame(*net, *expected);
  });
}

TEST(LibtorchOptimizerTest, ABackwardTooManyIsExplained) {
  ronda::run_threads(2, [] {
    Net net;
    Sgd sgd(net->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    LossOfShare(*net, 0).backward();
    EXPECT_THAT(small::ErrorOf([&] { LossOfShare(*net, 1).backward(); }),
                HasSubstr("is announced more than 1 time in one step: call step() first, or set backward_passes"));
    EXPECT_THAT(small::ErrorOf([&] { optimizer.zero_grad(); }), HasSubstr("zero_grad() between backward() and step()"));
    optimizer.step();
    TrainShare(net, optimizer, 2);
  });
}

TEST(LibtorchOptimizerTest, AfterAFailedSubmissionTheStepSaysWhyItFailed) {
  const auto train = [] {
    Net net;
    Sgd own(net->parameters(), torch::optim::SGDOptions(0.1));
    DistributedOptimizer optimizer(own, net->named_parameters());
    TrainShare(net, optimizer, 0);
    if (ronda::rank() == 1) throw std::runtime_error("rank 1 stops");
    std::vector<float> value(1);
    small::ErrorOf([&] {
      for (;;) ronda::allreduce(ronda::tensor("value", value));
    });
    EXPECT_ANY_THROW(LossOfShare(*net, 1).backward());
    const std::string error = small::ErrorOf([&] { optimizer.step(); });
    EXPECT_THAT(error, HasSubstr("rank 1"));
    EXPECT_THAT(error, Not(HasSubstr("announced")));
  };
  EXPECT_ANY_THROW(ronda::run_threads(2, train));
}

TEST(LibtorchOptimizerTest, AllRanksLeaveAStepOutThatOverflowedOnOne) {
  ronda::run_threads(2, [] {
    Net net;
    Sgd sgd(net->parameters(), 1);
    ronda::DistributedOptimizerOptions options;
    options.skip_on_overflow = true;
    DistributedOptimizer optimizer(sgd, net->named_parameters(), options);
    const at::Tensor before = net->last->bias.detach().clone();
    const float factor = ronda::rank() == 1 ? std::numeric_limits<float>::infinity() : 1;
    (net->last->forward(at::ones({1, 8})).sum() * factor).backward();
    optimizer.step();
    EXPECT_TRUE(optimizer.overflowed());
    EXPECT_THAT(std::string(optimizer.overflowed_gradient()), HasSubstr("last."));
    EXPECT_EQ(optimizer.skipped_steps(), 1);
    EXPECT_TRUE(net->last->bias.equal(before));
    EXPECT_THAT(small::ErrorOf([&] { optimizer.step([] { return at::Tensor(); }); }), HasSubstr("skip_on_overflow"));
  });
}

TEST(LibtorchOptimizerTest, GradientsAreClippedBeforeTheStep) {
  ronda::run_threads(2, [] {
    Net net;
    Sgd sgd(net->parameters(), 1);
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    (100 * LossOfShare(*net, 0)).backward();
    optimizer.synchronize();
    const double norm = ronda::training::clip_by_global_norm(optimizer.gradients(), 0.5);
    EXPECT_GT(norm, 0.5);
    double squares = 0;
    for (const at::Tensor& parameter : net->parameters()) squares += parameter.grad().square().sum().item<double>();
    EXPECT_NEAR(squares, 0.25, 1e-5);
    optimizer.step();
  });
}

TEST(LibtorchOptimizerTest, FrozenLayersTakeNoPart) {
  ronda::run_threads(2, [] {
    Net net;
    for (const at::Tensor& parameter : net->first->parameters()) parameter.set_requires_grad(false);
    Sgd sgd(net->parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.5));
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    EXPECT_EQ(optimizer.gradients().size(), 2u);
    const at::Tensor before = net->first->weight.clone();
    TrainShare(net, optimizer, 0);
    EXPECT_TRUE(net->first->weight.equal(before));
    EXPECT_FALSE(net->first->weight.grad().defined());
  });
}

TEST(LibtorchOptimizerTest, AParameterWithTwoNamesTravelsOnce) {
  ronda::run_threads(2, [] {
    torch::nn::Linear layer(4, 4);
    ronda::torch::broadcast_parameters(layer);
    torch::nn::Sequential net(layer, torch::nn::Tanh(), layer);
    Sgd sgd(layer->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    EXPECT_EQ(optimizer.gradients().size(), 2u);
    net->forward(small::Numbers({2, 4}, ronda::rank())).sum().backward();
    optimizer.step();
    EXPECT_TRUE(ronda::torch::broadcast("weight", layer->weight, 0).equal(layer->weight));
  });
}

// Autograd gives a gradient the strides of its parameter.
TEST(LibtorchOptimizerTest, ParametersInAnotherMemoryFormatTrainAsInOneProcess) {
  ronda::run_threads(2, [] {
    torch::nn::Conv2d net(2, 3, 3), expected(2, 3, 3);
    const torch::nn::Conv2d* const both[] = {&net, &expected};
    for (const torch::nn::Conv2d* layer : both) {
      const torch::NoGradGuard no_grad;
      (*layer)->weight.copy_(small::Numbers({3, 2, 3, 3}, 1));
      (*layer)->bias.zero_();
    }
    net->weight.set_data(net->weight.contiguous(at::MemoryFormat::ChannelsLast));
    ASSERT_FALSE(net->weight.is_contiguous());
    Sgd own(net->parameters(), 0.1), reference(expected->parameters(), 0.1);
    DistributedOptimizer optimizer(own, net->named_parameters());
    for (int step = 0; step < 3; ++step) {
      const at::Tensor input = small::Numbers({4, 2, 5, 5}, step);
      optimizer.zero_grad();
      net->forward(small::Share(input)).square().mean().backward();
      optimizer.step();
      reference.zero_grad();
      expected->forward(input).square().mean().backward();
      reference.step();
    }
    small::ExpectSame(*net, *expected);
    EXPECT_FALSE(net->weight.is_contiguous());
  });
}

TEST(LibtorchOptimizerTest, GradientThatIsAViewWithOtherSignsIsReducedWithItsSigns) {
  ronda::run_threads(2, [] {
    torch::nn::Linear layer(2, 1);
    Sgd sgd(layer->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, layer->named_parameters());
    layer->weight.mutable_grad() = ronda::rank() == 0 ? at::_neg_view(at::full({1, 2}, 2.0f)) : at::ones({1, 2});
    optimizer.synchronize();
    EXPECT_TRUE(layer->weight.grad().equal(at::full({1, 2}, -0.5f))) << layer->weight.grad();
  });
}

// Trains a layer whose parameters `change` replaces after the wrapper was made and after each step. `make_input`
// returns the input of this rank for the layer as it is. Expects the mean of the ranks' gradients.
template <class Change, class MakeInput>
void ExpectReducedAfter(const Change& change, const MakeInput& make_input) {
  ronda::run_threads(2, [&] {
    torch::nn::Linear layer(5, 1000);
    Sgd sgd(layer->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, layer->named_parameters());
    for (int step = 0; step < 4; ++step) {
      change(layer, step);
      optimizer.zero_grad();
      const at::Tensor input = make_input(layer) * (ronda::rank() + 1);
      at::linear(input, layer->weight, layer->bias).sum().backward();
      optimizer.step();
      const at::Tensor gradient = layer->weight.grad();
      EXPECT_TRUE(gradient.equal(at::full_like(layer->weight, 1.5))) << "in step " << step;
    }
  });
}

TEST(LibtorchOptimizerTest, ParametersMayGetAnotherDtype) {
  const at::ScalarType types[] = {at::kDouble, at::kBFloat16, at::kBFloat16, at::kFloat};
  ExpectReducedAfter([&](torch::nn::Linear& layer, int step) { layer->to(types[step]); },
                     [](const torch::nn::Linear& layer) {
                       return at::ones({1, 5}, layer->weight.options()).detach();
                     });
}

TEST(LibtorchOptimizerTest, ParametersMayGetAnotherShape) {
  const auto change = [](torch::nn::Linear& layer, int step) {
    const std::int64_t columns = 3 + 4 * (step / 2);
    layer->weight.set_data(at::ones({1000, columns}));
    layer->weight.mutable_grad() = at::Tensor();
  };
  ExpectReducedAfter(change, [](const torch::nn::Linear& layer) { return at::ones({1, layer->weight.size(1)}); });
}

TEST(LibtorchOptimizerTest, GradientsTravelDuringBackwardAfterAChangeOfDtype) {
  ronda::run_threads(2, [] {
    Net net;
    Sgd sgd(net->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    net->to(at::kDouble);
    optimizer.zero_grad();
    net->forward(small::Inputs(0).to(at::kDouble)).sum().backward();
    EXPECT_THAT(small::ErrorOf([&] { optimizer.zero_grad(); }), HasSubstr("zero_grad() between backward() and step()"));
    optimizer.step();
  });
}

TEST(LibtorchOptimizerTest, ParameterThatChangesDuringAStepIsNamed) {
  ronda::run_threads(1, [] {
    Net net;
    Sgd sgd(net->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, net->named_parameters());
    net->last->forward(at::ones({1, 8})).sum().backward();
    net->first->bias.set_data(at::ones({2}));
    EXPECT_THAT(small::ErrorOf([&] { optimizer.step(); }),
                HasSubstr("DistributedOptimizer: the gradient of 'first.bias' has not the dtype and shape that its "
                          "parameter had when the step began"));
    optimizer.zero_grad();
    optimizer.step();  // a new step has begun
  });
}

TEST(LibtorchOptimizerTest, ParameterThatCannotBeReducedIsNamed) {
  ronda::run_threads(1, [] {
    Net net, other;
    Sgd sgd(other->parameters(), 0.1);
    EXPECT_THAT(small::ErrorOf([&] { DistributedOptimizer(sgd, net->named_parameters()); }),
                HasSubstr("the optimizer has a parameter of shape [8, 6] that named_parameters has not"));
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    Sgd sparse(table->parameters(), 0.1);
    DistributedOptimizer optimizer(sparse, table->named_parameters());
    EXPECT_THAT(small::ErrorOf([&] { table->forward(at::ones({2}, at::kLong)).sum().backward(); }),
                HasSubstr("DistributedOptimizer: the gradient of 'weight' is sparse"));
    EXPECT_THAT(small::ErrorOf([&] { optimizer.step(); }), HasSubstr("is sparse"));
    table->weight.mutable_grad() = at::Tensor();
    optimizer.step();  // a new step has begun
  });
}

TEST(LibtorchOptimizerTest, GradientThatCannotBeReducedCountsAsZerosOnTheOtherRanks) {
  ronda::run_threads(2, [] {
    torch::nn::Linear layer(2, 1);
    Sgd sgd(layer->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, layer->named_parameters());
    for (const bool has_sparse : {false, true}) {
      const at::Tensor dense = at::ones({1, 2});
      if (has_sparse && ronda::rank() == 1) {
        layer->weight.mutable_grad() = dense.to_sparse();
        EXPECT_THAT(small::ErrorOf([&] { optimizer.step(); }), HasSubstr("the gradient of 'weight' is sparse"));
      } else {
        layer->weight.mutable_grad() = dense;
        optimizer.step();
        EXPECT_TRUE(dense.equal(at::full({1, 2}, has_sparse ? 0.5 : 1.0))) << dense;
      }
    }
  });
}

TEST(LibtorchOptimizerTest, AfterItTheHooksAreGone) {
  ronda::run_threads(2, [] {
    Net net;
    Sgd sgd(net->parameters(), 0.1);
    { const DistributedOptimizer optimizer(sgd, net->named_parameters()); }
    LossOfShare(*net, 0).backward();
    LossOfShare(*net, 0).backward();
    DistributedOptimizer again(sgd, net->named_parameters());
    TrainShare(net, again, 1);
  });
}

}  // namespace
