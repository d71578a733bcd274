// SPDX-License-Identifier: Apache-2.0

#include "examples/torch_lenet/flags.h"

namespace torch_lenet {

using lenet::NumberFlag;
using lenet::TextFlag;

std::vector<lenet::Flag> FlagsOf(Flags* flags) {
  constexpr std::int64_t kMillion = 1'000'000;
  return {
      TextFlag("--data", "a directory", &flags->data,
               "where the four MNIST files are (default: the 10,000 digits of examples/lenet_mnist)"),
      NumberFlag<std::int64_t>("--epochs", 1, kMillion, &flags->epochs, "how often to go through the training digits"),
      NumberFlag<std::int64_t>("--batch-size", 1, kMillion, &flags->batch_size,
                               "digits a step, over all ranks, which must share them equally"),
      NumberFlag<double>("--lr", 0, 1000, &flags->learning_rate, "learning rate"),
      NumberFlag<std::uint64_t>("--seed", 0, UINT64_MAX, &flags->seed, "of the weights and of the order of the digits"),
  };
}

}  // namespace torch_lenet
