// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_LENET_MNIST_FLAGS_H_
#define RONDA_EXAMPLES_LENET_MNIST_FLAGS_H_

#include <string>
#include <vector>

#include "examples/lenet_mnist/flag_list.h"
#include "examples/lenet_mnist/trainer.h"

namespace lenet {

struct Flags {
  enum class Action { kTrain, kShowHelp };

  Action action = Action::kTrain;
  std::string data;             // directory of the digits; empty: those that come with the example
  std::string dump_parameters;  // file for the trained parameters; empty: none
  TrainingOptions training;
};

// Reads the flags. `arguments` must not include the program name. Throws UsageError, like ReadFlags().
Flags ParseFlags(const std::vector<std::string>& arguments);

// Returns the --help text of the program with this name.
std::string Usage(const std::string& program);

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_FLAGS_H_
