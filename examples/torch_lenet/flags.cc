// SPDX-License-Identifier: Apache-2.0

#include "examples/torch_lenet/flags.h"

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace torch_lenet {
namespace {

constexpr int kNameWidth = 16;  // the width of the column of names in the help

}  // namespace

template <class Number>
Flag NumberFlag(const std::string& name, Number least, Number most, Number* number, const std::string& help) {
  std::ostringstream with_default;
  with_default << help << " (default: " << *number << ")";
  return {name, with_default.str(), [=](const std::string& text) {
            Number parsed{};
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
            // In this form a NaN is also refused.
            if (error != std::errc() || end != text.data() + text.size() || !(parsed >= least && parsed <= most)) {
              throw std::invalid_argument(name + " takes a number from " + std::to_string(least) + " to " +
                                          std::to_string(most) + ", not \"" + text + "\"");
            }
            *number = parsed;
          }};
}
template Flag NumberFlag(const std::string&, std::int64_t, std::int64_t, std::int64_t*, const std::string&);
template Flag NumberFlag(const std::string&, std::uint64_t, std::uint64_t, std::uint64_t*, const std::string&);
template Flag NumberFlag(const std::string&, double, double, double*, const std::string&);

Flag TextFlag(const std::string& name, std::string* text, const std::string& help) {
  return {name, help, [=](const std::string& value) { *text = value; }};
}

std::vector<Flag> FlagsOf(Flags* flags) {
  constexpr std::int64_t kMillion = 1'000'000;
  return {
      TextFlag("--data", &flags->data,
               "where the four MNIST files are (default: the 10,000 digits of examples/lenet_mnist)"),
      NumberFlag<std::int64_t>("--epochs", 1, kMillion, &flags->epochs, "how often to go through the training digits"),
      NumberFlag<std::int64_t>("--batch-size", 1, kMillion, &flags->batch_size,
                               "digits a step, over all ranks, which must share them equally"),
      NumberFlag<double>("--lr", 0, 1000, &flags->learning_rate, "learning rate"),
      NumberFlag<std::uint64_t>("--seed", 0, UINT64_MAX, &flags->seed, "of the weights and of the order of the digits"),
  };
}

bool ParseFlags(const std::vector<Flag>& flags, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help") return false;
    const std::size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& any) { return any.name == name; });
    if (flag == flags.end()) {
      throw std::invalid_argument("there is no flag \"" + name + "\"; --help lists those there are");
    }
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      throw std::invalid_argument("nothing follows " + name + "; --help lists the flags");
    }
    flag->set(equals == std::string::npos ? arguments[++i] : arguments[i].substr(equals + 1));
  }
  return true;
}

std::string Usage(const std::string& head, const std::vector<Flag>& flags) {
  std::ostringstream usage;
  usage << head << std::left;
  for (const Flag& flag : flags) usage << "  " << std::setw(kNameWidth) << flag.name << "  " << flag.help << "\n";
  usage << "  " << std::setw(kNameWidth) << "--help"
        << "  print this\n";
  return usage.str();
}

}  // namespace torch_lenet
