// SPDX-License-Identifier: Apache-2.0

// A network, batches, and comparisons for tests that compare several ranks with one process.
#ifndef RONDA_TESTS_CLIENT_LIBTORCH_SMALL_NET_H_
#define RONDA_TESTS_CLIENT_LIBTORCH_SMALL_NET_H_

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"

namespace small {

// The numbers of ranks with which each test runs. The ranks are threads. A program must also work with one rank.
constexpr int kRankCounts[] = {1, 2, 4};

// Returns numbers without a regular pattern, so that a test notices swapped elements. Each `seed` gives different
// numbers.
inline at::Tensor Numbers(at::IntArrayRef shape, double seed) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  return at::sin(at::arange(count, at::kFloat) * 1.7 + 31 * seed).view(shape).contiguous();
}

// A network of two layers.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(double seed = 1) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.copy_(0.5 * Numbers(parameter.sizes(), seed += 0.1));
  }
  at::Tensor forward(const at::Tensor& input) { return last->forward(at::tanh(first->forward(input))); }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 3));
};
TORCH_MODULE(Net);

constexpr std::int64_t kBatch = 8;  // over all ranks

inline at::Tensor Inputs(int step) { return Numbers({kBatch, 6}, step + 0.25); }
inline at::Tensor Targets(int step) { return Numbers({kBatch, 3}, step + 0.75); }

// Returns this rank's rows of `whole`.
inline at::Tensor Share(const at::Tensor& whole) { return whole.chunk(ronda::size())[ronda::rank()]; }

template <class Model>
at::Tensor LossOfShare(Model& model, int step) {
  return torch::mse_loss(model.forward(Share(Inputs(step))), Share(Targets(step)));
}
inline at::Tensor LossOfWhole(Net& net, int step) { return torch::mse_loss(net->forward(Inputs(step)), Targets(step)); }

inline void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, const std::string& what,
                        double tolerance = 1e-5) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) return;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(at::allclose(actual.to(at::kDouble), expected.to(at::kDouble), tolerance, tolerance))
      << what << " is " << actual << ", and should be " << expected;
}

// Parameters and buffers.
inline void ExpectSame(const torch::nn::Module& actual, const torch::nn::Module& expected, double tolerance = 1e-5) {
  for (const auto& item : expected.named_parameters()) {
    ExpectClose(actual.named_parameters()[item.key()].detach(), item.value().detach(), item.key(), tolerance);
  }
  for (const auto& item : expected.named_buffers()) {
    ExpectClose(actual.named_buffers()[item.key()], item.value(), item.key(), tolerance);
  }
}

// Returns the text of the exception that the call throws.
template <class Call>
std::string ErrorOf(const Call& call) {
  try {
    call();
  } catch (const ronda::Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace small

#endif  // RONDA_TESTS_CLIENT_LIBTORCH_SMALL_NET_H_
