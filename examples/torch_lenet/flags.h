// SPDX-License-Identifier: Apache-2.0

// Command lines of the programs that train on digits with libtorch.
#ifndef RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_
#define RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/lenet_mnist/flag_list.h"

namespace torch_lenet {

// The flags that all these programs share.
struct Flags {
  std::string data;              // directory of the digits; empty: those of examples/lenet_mnist
  std::int64_t epochs = 4;       // passes over the training digits
  std::int64_t batch_size = 32;  // digits per step, over all ranks
  double learning_rate = 0.03;
  std::uint64_t seed = 1;  // of the weights and of the order of the digits
};

// Returns the flags --data, --epochs, --batch-size, --lr and --seed; their values go to *flags.
std::vector<lenet::Flag> FlagsOf(Flags* flags);

}  // namespace torch_lenet

#endif  // RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_
