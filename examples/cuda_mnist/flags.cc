// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/flags.h"

#include <algorithm>

namespace cuda_mnist {

Flags ParseFlags(std::vector<std::string> arguments) {
  const auto others = std::remove(arguments.begin(), arguments.end(), "--bench");
  Flags flags;
  if (others != arguments.end()) flags.work = Flags::Work::kBenchmark;
  arguments.erase(others, arguments.end());
  flags.shared = lenet::ParseFlags(arguments);
  if (!flags.shared.training.checkpoints.empty()) {
    throw lenet::UsageError("--checkpoints is for lenet_mnist: checkpoints are of tensors in the host's memory");
  }
  return flags;
}

std::string Usage() {
  return lenet::Usage("cuda_mnist") +
         "  --bench            train on made-up digits instead, and print images/s (--steps: of each measurement)\n";
}

}  // namespace cuda_mnist
