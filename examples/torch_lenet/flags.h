#ifndef RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_
#define RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace torch_lenet {

struct Flags {
  bool help = false;
  std::string data;              // directory of the digits; empty: those of examples/lenet_mnist
  std::int64_t epochs = 4;       // how often to go through the training digits
  std::int64_t batch_size = 32;  // digits a step, over all ranks
  double learning_rate = 0.03;
  std::uint64_t seed = 1;  // of the weights and of the order of the digits
};

// Understands "--name value" and "--name=value"; `arguments` do not include the program's name.
//
// Throws std::invalid_argument that names the flag and what it takes.
Flags ParseFlags(const std::vector<std::string>& arguments);

// The text of --help.
std::string Usage();

}  // namespace torch_lenet

#endif  // RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_
