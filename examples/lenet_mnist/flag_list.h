// SPDX-License-Identifier: Apache-2.0

// Reads the flags of the example programs, and creates the --help text.
#ifndef RONDA_EXAMPLES_LENET_MNIST_FLAG_LIST_H_
#define RONDA_EXAMPLES_LENET_MNIST_FLAG_LIST_H_

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace lenet {

// An invalid command line; what() has the reason.
class UsageError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// A flag with a value. `set` stores the value, or returns false if it does not fit the description in `takes`.
struct Flag {
  std::string name;
  std::string takes;
  std::string help;  // a line
  std::function<bool(const std::string& value)> set;
};

// Returns a flag whose value is a number from `least` to `most`. The help shows `initially` as the default or, if it is
// empty, the value of *number. Number is std::int64_t, std::uint64_t or double.
template <class Number>
Flag NumberFlag(const std::string& name, Number least, Number most, Number* number, const std::string& help,
                const std::string& initially = "");

// Returns a flag whose value is a nonempty text.
Flag TextFlag(const std::string& name, const std::string& takes, std::string* text, const std::string& help);

// Reads "--name value" and "--name=value". `arguments` must not include the program name. Returns false if `arguments`
// include --help.
//
// Throws UsageError, which names the flag and the values that it takes.
bool ReadFlags(const std::vector<Flag>& flags, const std::vector<std::string>& arguments);

// Returns the --help text: `head`, and a line for each flag.
std::string HelpText(const std::string& head, const std::vector<Flag>& flags);

}  // namespace lenet

#endif  // RONDA_EXAMPLES_LENET_MNIST_FLAG_LIST_H_
