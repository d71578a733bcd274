// SPDX-License-Identifier: Apache-2.0

// Tests operations on libtorch tensors, and broadcasts of parameters to every rank.
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/libtorch/small_net.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ronda::ReduceOptions kSum = {ronda::Op::Sum};

TEST(LibtorchCollectivesTest, EveryDtypeIsSummed) {
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [] {
      for (const at::ScalarType type :
           {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
        const at::Tensor input = at::full({2, 3}, ronda::rank() + 1, type);
        const at::Tensor sum = ronda::torch::allreduce("sum", input, kSum);
        EXPECT_EQ(sum.scalar_type(), type);
        EXPECT_TRUE(sum.equal(at::full({2, 3}, ronda::size() * (ronda::size() + 1) / 2, type))) << sum;
        EXPECT_TRUE(input.equal(at::full({2, 3}, ronda::rank() + 1, type))) << "the input has changed";
      }
      const at::Tensor bits = at::full({3}, ronda::rank() == 0, at::kBool);
      EXPECT_TRUE(ronda::torch::allreduce("any", bits, {ronda::Op::Bor}).all().item<bool>());
    });
  }
}

TEST(LibtorchCollectivesTest, ATensorThatIsNotContiguousIsReducedWhereItIs) {
  ronda::run_threads(2, [] {
    const at::Tensor whole = at::arange(12, at::kFloat).view({3, 4}) + ronda::rank();
    const at::Tensor columns = whole.t().slice(0, 1, 3);
    ASSERT_FALSE(columns.is_contiguous());
    const at::Tensor returned = ronda::torch::allreduce_("columns", columns);
    EXPECT_TRUE(returned.is_same(columns));
    at::Tensor expected = at::arange(12, at::kFloat).view({3, 4}) + ronda::rank();
    expected.slice(1, 1, 3) += 0.5 - ronda::rank();
    EXPECT_TRUE(whole.equal(expected)) << whole;
    EXPECT_THAT(small::ErrorOf([&] { ronda::torch::view("columns", columns); }),
                HasSubstr("tensor 'columns' is not contiguous"));
  });
}

// imag(conj(z)) is a view of z's memory, in which the elements have the other sign.
TEST(LibtorchCollectivesTest, ViewThatChangesSignsIsReducedWithItsSigns) {
  ronda::run_threads(2, [] {
    const auto minus_two = [] { return at::_neg_view(at::full({3}, 2.0f)); };
    const at::Tensor negative = minus_two();
    ASSERT_TRUE(negative.is_neg());
    EXPECT_TRUE(ronda::torch::allreduce("sum", negative, kSum).equal(at::full({3}, -4.0f)));
    EXPECT_TRUE(ronda::torch::allgather("rows", negative).equal(at::full({6}, -2.0f)));
    EXPECT_TRUE(ronda::torch::broadcast("root", negative, 0).equal(at::full({3}, -2.0f)));
    EXPECT_TRUE(ronda::torch::allreduce_("in place", negative, kSum).equal(at::full({3}, -4.0f)));
    EXPECT_THAT(small::ErrorOf([&] { ronda::torch::view("minus", minus_two()); }),
                HasSubstr("tensor 'minus' is a view that changes signs: pass tensor.resolve_neg()"));
  });
}

TEST(LibtorchCollectivesTest, AViewGoesToAnyOperation) {
  ronda::run_threads(2, [] {
    const at::Tensor value = at::full({2}, ronda::rank(), at::kDouble);
    ronda::allreduce(ronda::torch::view("value", value));
    EXPECT_TRUE(value.equal(at::full({2}, 0.5, at::kDouble)));
  });
}

TEST(LibtorchCollectivesTest, AutogradHearsThatATensorWasWritten) {
  ronda::run_threads(2, [] {
    const at::Tensor weights = at::full({2}, ronda::rank() + 1.0f).requires_grad_();
    const at::Tensor squares = (weights * weights).sum();
    ronda::torch::broadcast_("weights", weights, 0);
    EXPECT_EQ(weights[1].item<float>(), 1);
    EXPECT_TRUE(weights.requires_grad());
    EXPECT_THROW(squares.backward(), c10::Error) << "it uses values that were overwritten";
  });
}

TEST(LibtorchCollectivesTest, HandlesKeepWhatTheyNeed) {
  ronda::run_threads(2, [] {
    std::vector<ronda::torch::TensorHandle> sums;
    for (int i = 0; i < 20; ++i) {
      sums.push_back(ronda::torch::allreduce_async("sum " + std::to_string(i), at::full({1000}, i), kSum));
    }
    { const auto dropped = ronda::torch::allgather_async("dropped", at::ones({1000})); }
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(sums[i].result().equal(at::full({1000}, 2 * i)));
    auto gathered = ronda::torch::allgather_async("kept", at::full({1, 2}, ronda::rank()));
    EXPECT_TRUE(gathered.result().equal(at::arange(2).view({2, 1}).repeat({1, 2})));
  });
}

// Returns ones in memory whose release calls `on_release`.
at::Tensor OnesThatCall(std::function<void()> on_release) {
  auto* const elements = new std::vector<float>(1000, 1);
  return at::from_blob(
      elements->data(), {1000},
      [elements, on_release = std::move(on_release)](void* /*data*/) {
        on_release();
        delete elements;
      },
      at::kFloat);
}

// When the handle releases a tensor, it must already have waited for the tensor's operation, that is, it must be the
// handle of the next operation. Only the next operation has an overflow, or two rows from each rank.
TEST(LibtorchCollectivesTest, AssignedHandleWaitsBeforeItReleasesTheTensors) {
  ronda::run_threads(2, [] {
    ronda::ReduceOptions checked = kSum;
    checked.detect_overflow = true;
    bool is_next = false;
    ronda::torch::TensorHandle sum =
        ronda::torch::allreduce_async("first", OnesThatCall([&] { is_next = sum.found_inf(); }), checked);
    sum = ronda::torch::allreduce_async("next", at::full({2}, std::numeric_limits<float>::infinity()), checked);
    EXPECT_TRUE(is_next);
    std::int64_t rows = 0;
    ronda::torch::RowsHandle all =
        ronda::torch::allgather_async("first rows", OnesThatCall([&] { rows = all.rows_per_rank()[0]; }));
    all = ronda::torch::allgather_async("next rows", at::ones({2}));
    EXPECT_EQ(rows, 2);
  });
}

TEST(LibtorchCollectivesTest, RowsAreExchanged) {
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [] {
      const int rank = ronda::rank(), size = ronda::size();
      auto gathered = ronda::torch::allgather_async("rows", at::full({rank, 2}, rank));
      EXPECT_EQ(gathered.result().sizes(), at::IntArrayRef({size * (size - 1) / 2, 2}));
      for (int r = 0; r < size; ++r) EXPECT_EQ(gathered.rows_per_rank()[r], r);
      EXPECT_EQ(gathered.result().sum().item<int>(), (size - 1) * size * (2 * size - 1) / 3);

      const at::Tensor rows = at::arange(size, at::kDouble).view({size, 1}).t().contiguous().t();
      const at::Tensor own = ronda::torch::reducescatter("scattered", rows, kSum);
      EXPECT_TRUE(own.equal(at::full({1, 1}, size * rank, at::kDouble))) << own;

      const at::Tensor turned = ronda::torch::alltoall("turned", at::arange(size) + 10 * rank);
      EXPECT_TRUE(turned.equal(10 * at::arange(size) + rank)) << turned;
      std::vector<std::int64_t> splits(size);
      splits[size - 1] = 3;
      auto last = ronda::torch::alltoall_async("to the last", at::full({3}, rank, at::kShort), splits);
      EXPECT_EQ(last.result().size(0), rank == size - 1 ? 3 * size : 0);

      const at::Tensor none = ronda::torch::allreduce("none", at::empty({0, 4}));
      EXPECT_EQ(none.sizes(), at::IntArrayRef({0, 4}));
    });
  }
}

TEST(LibtorchCollectivesTest, AGroupIsReducedInPlace) {
  ronda::run_threads(2, [] {
    const std::vector<at::Tensor> tensors = {at::full({2}, ronda::rank()),
                                             at::full({2, 2}, ronda::rank(), at::kFloat).t(),
                                             at::full({}, 3.0 * ronda::rank())};
    ronda::torch::grouped_allreduce_("group", tensors, kSum);
    EXPECT_TRUE(tensors[0].equal(at::full({2}, 1)));
    EXPECT_TRUE(tensors[1].equal(at::ones({2, 2})));
    EXPECT_EQ(tensors[2].item<double>(), 3);
  });
}

TEST(LibtorchCollectivesTest, TensorsThatCannotTravelAreExplained) {
  const auto error_of = [](const at::Tensor& tensor) {
    return small::ErrorOf([&] { ronda::torch::allreduce("t", tensor); });
  };
  EXPECT_THAT(error_of(at::Tensor()), HasSubstr("tensor 't' is undefined"));
  EXPECT_THAT(error_of(at::ones({2}).to_sparse()), HasSubstr("tensor 't' is sparse: pass tensor.to_dense()"));
  EXPECT_THAT(error_of(at::ones({2}, at::kComplexFloat)), HasSubstr("elements of type ComplexFloat"));
  EXPECT_THAT(error_of(at::empty({2}, at::TensorOptions(at::kMeta))),
              HasSubstr("is on the device meta: here tensors are in host memory"));
}

// A module that has one layer under two names, and several buffers.
struct TwiceImpl : torch::nn::Module {
  explicit TwiceImpl(double seed) {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(small::Numbers({3, 3}, seed));
    norm->running_mean.fill_(seed);
    norm->num_batches_tracked.fill_(static_cast<std::int64_t>(seed));
    register_buffer("absent", at::Tensor());
    layer->bias.set_data(at::full({2, 3}, seed, at::kFloat).t()[0]);
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 3));
  torch::nn::Linear again = register_module("again", layer);
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(3));
};
TORCH_MODULE(Twice);

TEST(LibtorchParametersTest, ParametersAndBuffersAreThoseOfTheRoot) {
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [] {
      const int root = ronda::size() - 1;
      const Twice net(static_cast<double>(ronda::rank())), expected(static_cast<double>(root));
      ronda::torch::broadcast_parameters(net, root);
      small::ExpectSame(*net, *expected, 0);
      const std::shared_ptr<torch::nn::Module> pointer = net.ptr();
      ronda::torch::broadcast_parameters(pointer);
      ronda::torch::broadcast_parameters(*net);
    });
  }
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>, double)>;

template <class Optimizer, class Options>
MakeOptimizer Make(const Options& options) {
  return [options](std::vector<at::Tensor> parameters, double rate) {
    Options with_rate = options;
    with_rate.lr(rate);
    return std::make_unique<Optimizer>(std::move(parameters), with_rate);
  };
}

std::vector<std::pair<std::string, MakeOptimizer>> AllOptimizers() {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  return {{"SGD", Make<SGD>(SGDOptions(1))},
          {"SGD with momentum", Make<SGD>(SGDOptions(1).momentum(0.9))},
          {"Adam", Make<Adam>(AdamOptions().amsgrad(true))},
          {"AdamW", Make<AdamW>(AdamWOptions())},
          {"Adagrad", Make<Adagrad>(AdagradOptions().lr_decay(0.1))},
          {"RMSprop", Make<RMSprop>(RMSpropOptions().momentum(0.5).centered(true))},
          {"LBFGS", Make<LBFGS>(LBFGSOptions().max_iter(3))}};
}

void TakeStep(small::Net& net, torch::optim::Optimizer& optimizer, int step) {
  optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor loss = small::LossOfWhole(net, step);
    loss.backward();
    return loss;
  });
}

// Tests every kind of optimizer. The root's optimizer has made `steps` steps, and the other ranks' optimizers have a
// different learning rate. Expects that after the broadcast, further steps give the same parameters on every rank.
void ExpectBroadcastStates(int ranks, int steps) {
  for (const auto& [name, make] : AllOptimizers()) {
    ronda::run_threads(ranks, [&name = name, &make = make, steps] {
      const bool is_root = ronda::rank() == 0;
      small::Net net, expected;
      const auto reference = make(expected->parameters(), 0.02),
                 optimizer = make(net->parameters(), is_root ? 0.02 : 0.5);
      for (int step = 0; step < steps; ++step) {
        TakeStep(expected, *reference, step);
        if (is_root) TakeStep(net, *optimizer, step);
      }
      if (!is_root && steps > 0) TakeStep(net, *optimizer, 7);  // a state to be replaced
      ronda::torch::broadcast_parameters(net);
      ronda::torch::broadcast_optimizer_state(*optimizer);
      for (int step = steps; step < steps + 2; ++step) {
        TakeStep(expected, *reference, step);
        TakeStep(net, *optimizer, step);
      }
      SCOPED_TRACE(name);
      small::ExpectSame(*net, *expected, 0);
    });
  }
}

TEST(LibtorchParametersTest, EveryOptimizersStateIsThatOfTheRoot) {
  ExpectBroadcastStates(2, 3);
  ExpectBroadcastStates(4, 1);
}

TEST(LibtorchParametersTest, OptimizersThatHaveMadeNoStepAreBroadcastToo) { ExpectBroadcastStates(2, 0); }

// Options that libtorch cannot write to an archive.
struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {};
struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<OwnOptions>()) {}
  at::Tensor step(LossClosure /*closure*/) override { return {}; }
  void save(torch::serialize::OutputArchive& /*archive*/) const override {}
};

TEST(LibtorchParametersTest, AStateThatCannotBeSavedFailsOnEveryRank) {
  ronda::run_threads(2, [] {
    const small::Net net;
    OwnOptimizer optimizer(net->parameters());
    EXPECT_THAT(small::ErrorOf([&] { ronda::torch::broadcast_optimizer_state(optimizer, 1); }),
                HasSubstr("broadcast_optimizer_state: the state of rank 1 cannot be saved: "));
  });
}

}  // namespace
