#include "examples/torch_lenet/flags.h"

#include <charconv>
#include <stdexcept>
#include <system_error>

namespace torch_lenet {
namespace {

template <class Number>
void SetNumber(const std::string& name, const std::string& text, Number least, Number most, Number* number) {
  Number parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  // Written so that a NaN is refused as well.
  if (error != std::errc() || end != text.data() + text.size() || !(parsed >= least && parsed <= most)) {
    throw std::invalid_argument(name + " takes a number from " + std::to_string(least) + " to " + std::to_string(most) +
                                ", not \"" + text + "\"");
  }
  *number = parsed;
}

void Set(const std::string& name, const std::string& value, Flags* flags) {
  constexpr std::int64_t kMillion = 1'000'000;
  if (name == "--data") {
    flags->data = value;
  } else if (name == "--epochs") {
    SetNumber<std::int64_t>(name, value, 1, kMillion, &flags->epochs);
  } else if (name == "--batch-size") {
    SetNumber<std::int64_t>(name, value, 1, kMillion, &flags->batch_size);
  } else if (name == "--lr") {
    SetNumber<double>(name, value, 0, 1000, &flags->learning_rate);
  } else if (name == "--seed") {
    SetNumber<std::uint64_t>(name, value, 0, UINT64_MAX, &flags->seed);
  } else {
    throw std::invalid_argument("there is no flag \"" + name + "\"; --help lists those there are");
  }
}

}  // namespace

Flags ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help") {
      flags.help = true;
      continue;
    }
    const std::size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      throw std::invalid_argument("nothing follows " + name + "; --help lists the flags");
    }
    Set(name, equals == std::string::npos ? arguments[++i] : arguments[i].substr(equals + 1), &flags);
  }
  return flags;
}

std::string Usage() {
  return "Trains LeNet on MNIST digits with libtorch, on all ranks of the job it is started in:\n"
         "  rondarun -np 2 torch_lenet [flags]\n\n"
         "  --data DIR        where the four MNIST files are (default: the 10,000 digits of examples/lenet_mnist)\n"
         "  --epochs N        how often to go through the training digits (default: 4)\n"
         "  --batch-size N    digits a step, over all ranks, which must share them equally (default: 32)\n"
         "  --lr X            learning rate (default: 0.03)\n"
         "  --seed N          of the weights and of the order of the digits (default: 1)\n"
         "  --help            print this\n";
}

}  // namespace torch_lenet
