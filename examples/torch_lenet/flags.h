// SPDX-License-Identifier: Apache-2.0

// The command lines of the programs that train on digits with libtorch.
#ifndef RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_
#define RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace torch_lenet {

// A flag that takes a value. `set` throws std::invalid_argument that names the flag and the values that it takes.
struct Flag {
  std::string name;
  std::string help;  // a line
  std::function<void(const std::string& value)> set;
};

// A number from `least` to `most`; the current value of *number is appended to `help`. For std::int64_t, std::uint64_t
// and double.
template <class Number>
Flag NumberFlag(const std::string& name, Number least, Number most, Number* number, const std::string& help);

Flag TextFlag(const std::string& name, std::string* text, const std::string& help);

// The flags that all these programs share.
struct Flags {
  std::string data;              // directory of the digits; empty: those of examples/lenet_mnist
  std::int64_t epochs = 4;       // passes over the training digits
  std::int64_t batch_size = 32;  // digits per step, over all ranks
  double learning_rate = 0.03;
  std::uint64_t seed = 1;  // of the weights and of the order of the digits
};

// --data, --epochs, --batch-size, --lr and --seed.
std::vector<Flag> FlagsOf(Flags* flags);

// Reads "--name value" and "--name=value"; `arguments` do not include the program's name. False: --help is among them.
// Throws std::invalid_argument that names the flag.
bool ParseFlags(const std::vector<Flag>& flags, const std::vector<std::string>& arguments);

// The text of --help: `head`, and a line for each flag.
std::string Usage(const std::string& head, const std::vector<Flag>& flags);

}  // namespace torch_lenet

#endif  // RONDA_EXAMPLES_TORCH_LENET_FLAGS_H_
