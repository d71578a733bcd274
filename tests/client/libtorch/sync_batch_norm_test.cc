// SPDX-License-Identifier: Apache-2.0

// Compares SyncBatchNorm, and modules converted to it, with BatchNorm in one process that has the whole batch.
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "client/ronda/torch.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/libtorch/small_net.h"

namespace {

using ::ronda::torch::DistributedDataParallel;
using ::ronda::torch::SyncBatchNorm;
using ::testing::HasSubstr;
using ::torch::nn::BatchNormOptions;

// Returns how many rows of the batch each rank gets. Rank 0 has the most rows.
std::vector<std::int64_t> UnevenRows(std::int64_t rows, int ranks) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 1);
  counts[0] = rows - (ranks - 1);
  return counts;
}

struct Case {
  std::vector<std::int64_t> shape;
  BatchNormOptions options = BatchNormOptions(3);
  double offset = 0;  // of the input
  double tolerance = 1e-5;
};

// Sets the weight and bias of `norm`, if it has them.
template <class Norm>
void SetParameters(Norm& norm) {
  if (!norm->options.affine()) return;
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(small::Numbers({3}, 5));
  norm->bias.copy_(small::Numbers({3}, 6));
}

template <class BatchNorm>
void ExpectSameAsOneProcess(const Case& test, const std::vector<std::int64_t>& rows) {
  SyncBatchNorm norm(test.options);
  BatchNorm expected(test.options);
  SetParameters(norm);
  SetParameters(expected);
  for (int step = 0; step < 3; ++step) {
    at::Tensor whole = (small::Numbers(test.shape, step) * 3 + test.offset).requires_grad_();
    const at::Tensor weights = small::Numbers(test.shape, step + 0.5);  // a derivative that varies between elements
    at::Tensor own = whole.detach().split_with_sizes(rows)[ronda::rank()].clone().requires_grad_();
    const at::Tensor expected_output = expected->forward(whole);
    const at::Tensor output = norm->forward(own);
    small::ExpectClose(output.detach(), expected_output.detach().split_with_sizes(rows)[ronda::rank()], "output",
                       test.tolerance);
    (expected_output * weights).sum().backward();
    (output * weights.split_with_sizes(rows)[ronda::rank()]).sum().backward();
    small::ExpectClose(own.grad(), whole.grad().split_with_sizes(rows)[ronda::rank()], "gradient", test.tolerance);
  }
  if (test.options.affine()) {
    const ronda::ReduceOptions sum = {ronda::Op::Sum};
    small::ExpectClose(ronda::torch::allreduce("weight", norm->weight.grad(), sum), expected->weight.grad(),
                       "gradient of the weight", 1e-4);
    small::ExpectClose(ronda::torch::allreduce("bias", norm->bias.grad(), sum), expected->bias.grad(),
                       "gradient of the bias", 1e-4);
  }
  small::ExpectSame(*norm, *expected, test.tolerance);
  norm->eval();
  expected->eval();
  const at::Tensor input = small::Numbers(test.shape, 9);
  small::ExpectClose(norm->forward(input).detach(), expected->forward(input).detach(), "evaluation", test.tolerance);
}

template <class BatchNorm>
void ExpectSameOnAllRankCounts(const Case& test) {
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [&] {
      const std::int64_t rows = test.shape[0];
      ExpectSameAsOneProcess<BatchNorm>(test, std::vector<std::int64_t>(ronda::size(), rows / ronda::size()));
      ExpectSameAsOneProcess<BatchNorm>(test, UnevenRows(rows, ronda::size()));
    });
  }
}

TEST(LibtorchSyncBatchNormTest, ComputesWhatOneProcessDoesWithTheWholeBatch) {
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm1d>({{8, 3}});
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm1d>({{8, 3, 5}});
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm2d>({{8, 3, 4, 5}});
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm3d>({{4, 3, 2, 3, 2}});
}

TEST(LibtorchSyncBatchNormTest, TakesTheOptionsOfBatchNorm) {
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm1d>({{8, 3}, BatchNormOptions(3).affine(false)});
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm1d>({{8, 3}, BatchNormOptions(3).momentum(torch::nullopt).eps(0.1)});
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm1d>({{8, 3}, BatchNormOptions(3).track_running_stats(false)});
}

TEST(LibtorchSyncBatchNormTest, ALargeMeanCostsNoDigits) {
  ExpectSameOnAllRankCounts<torch::nn::BatchNorm1d>({{8, 3}, BatchNormOptions(3), 1000, 2e-3});
}

TEST(LibtorchSyncBatchNormTest, ARanksBatchMayBeEmpty) {
  ronda::run_threads(3, [] { ExpectSameAsOneProcess<torch::nn::BatchNorm1d>({{8, 3}}, {5, 0, 3}); });
}

TEST(LibtorchSyncBatchNormTest, StatisticsStayAsTheyAreIfAllBatchesAreEmpty) {
  ronda::run_threads(2, [] {
    ExpectSameAsOneProcess<torch::nn::BatchNorm2d>({{0, 3, 2, 2}}, {0, 0});
    ExpectSameAsOneProcess<torch::nn::BatchNorm2d>({{0, 3, 2, 2}, BatchNormOptions(3).momentum(torch::nullopt)},
                                                   {0, 0});
  });
}

TEST(LibtorchSyncBatchNormTest, RanksOfAProcessSetNormalizeAmongThemselves) {
  ronda::run_threads(3, [] {
    const ronda::ProcessSet set = ronda::add_process_set({0, 2});
    if (!set.included()) return;
    SyncBatchNorm norm(BatchNormOptions(1), set);
    const at::Tensor output = norm->forward(at::full({1, 1}, 1.0f * ronda::rank()));
    EXPECT_NEAR(output.item<float>(), ronda::rank() - 1, 1e-4);
  });
}

TEST(LibtorchSyncBatchNormTest, OtherShapesAreExplained) {
  SyncBatchNorm norm(BatchNormOptions(3));
  try {
    norm->forward(at::ones({2, 4}));
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("the input has shape [2, 4]: it must be (N, 3, ...)"));
  }
}

TEST(LibtorchSyncBatchNormTest, ItReadsWhatABatchNormHasSaved) {
  torch::nn::BatchNorm1d saved(3);
  SetParameters(saved);
  saved->forward(small::Numbers({4, 3}, 1));
  std::stringstream file;
  torch::save(saved, file);
  SyncBatchNorm norm(BatchNormOptions(3));
  torch::load(norm, file);
  small::ExpectSame(*norm, *saved, 0);
}

// A module that contains a Sequential. The test puts this module into another Sequential.
struct HeadImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) { return layers->forward(input); }
  torch::nn::Sequential layers = register_module(
      "layers", torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(27, 3), torch::nn::BatchNorm1d(3)));
};
TORCH_MODULE(Head);

torch::nn::Sequential NormalizingNet() {
  torch::nn::Sequential net(torch::nn::Conv2d(1, 3, 3), torch::nn::BatchNorm2d(3), torch::nn::ReLU(), Head());
  const torch::NoGradGuard no_grad;
  double seed = 0;
  for (at::Tensor& parameter : net->parameters()) parameter.copy_(small::Numbers(parameter.sizes(), seed += 0.1));
  return net;
}

TEST(LibtorchSyncBatchNormTest, AConvertedNetTrainsAsOneProcess) {
  for (const int ranks : small::kRankCounts) {
    ronda::run_threads(ranks, [] {
      torch::nn::Sequential net = NormalizingNet(), expected = NormalizingNet();
      torch::optim::SGD own(net->parameters(), 0.1), reference(expected->parameters(), 0.1);
      ronda::torch::convert_sync_batchnorm(net);  // the optimizer still has its parameters
      EXPECT_NE(net[1]->as<SyncBatchNorm>(), nullptr);
      EXPECT_NE(net->at<HeadImpl>(3).layers[2]->as<SyncBatchNorm>(), nullptr);
      DistributedDataParallel model(net);
      for (int step = 0; step < 3; ++step) {
        const at::Tensor input = small::Numbers({8, 1, 5, 5}, step), targets = small::Numbers({8, 3}, step);
        own.zero_grad();
        torch::mse_loss(model(small::Share(input)), small::Share(targets)).backward();
        own.step();
        reference.zero_grad();
        torch::mse_loss(expected->forward(input), targets).backward();
        reference.step();
      }
      small::ExpectSame(*net, *expected, 1e-3);
      EXPECT_EQ(expected->named_buffers().size(), net->named_buffers().size());
    });
  }
}

struct OwnNetImpl : torch::nn::Module {
  torch::nn::Sequential layers = register_module("layers", NormalizingNet());
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(3));
};
TORCH_MODULE(OwnNet);

TEST(LibtorchSyncBatchNormTest, ABatchNormThatCannotBeReplacedIsNamedAndNothingIsConverted) {
  OwnNet net;
  EXPECT_THAT(small::ErrorOf([&] { ronda::torch::convert_sync_batchnorm(net); }),
              HasSubstr("'norm' is a member of a class, which keeps its type: declare it there as "
                        "ronda::torch::SyncBatchNorm"));
  EXPECT_EQ(net->layers[1]->as<SyncBatchNorm>(), nullptr);
}

}  // namespace
