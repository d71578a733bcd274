// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/flags.h"

#include <charconv>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <sstream>
#include <system_error>

namespace lenet {
namespace {

// One flag: `set` stores a value, or returns false if `takes` does not describe it.
struct FlagSpec {
  const char* name;
  const char* takes;
  const char* help;
  bool (*set)(const std::string& value, Flags& flags);
};

template <class Number>
bool ParseNumber(const std::string& text, Number least, Number most, Number* number) {
  Number parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  // In this form a NaN is also refused.
  if (error != std::errc() || end != text.data() + text.size() || !(parsed >= least && parsed <= most)) return false;
  *number = parsed;
  return true;
}

bool ParsePath(const std::string& text, std::string* path) {
  *path = text;
  return !text.empty();
}

bool ParseCompression(const std::string& text, ronda::Compression* compression) {
  if (text == "none") *compression = ronda::Compression::none;
  if (text == "fp16") *compression = ronda::Compression::fp16;
  if (text == "bf16") *compression = ronda::Compression::bf16;
  return text == "none" || text == "fp16" || text == "bf16";
}

constexpr int kNameWidth = 19;  // the width of the column of names in the help
constexpr std::size_t kMillion = 1'000'000;

constexpr FlagSpec kFlags[] = {
    {"--data", "a directory", "where the four MNIST files are, gzipped or not (default: the 10,000 digits included)",
     [](const std::string& value, Flags& flags) { return ParsePath(value, &flags.data); }},
    {"--epochs", "a number from 1 to 1000000", "how often to go through the training digits (default: 10)",
     [](const std::string& value, Flags& flags) {
       return ParseNumber<std::size_t>(value, 1, kMillion, &flags.training.epochs);
     }},
    {"--batch-size", "a number from 1 to 1000000", "digits a step, over all ranks (default: 16 a rank)",
     [](const std::string& value, Flags& flags) {
       return ParseNumber<std::size_t>(value, 1, kMillion, &flags.training.batch_size);
     }},
    {"--lr", "a number from 0 to 1000", "learning rate for a batch of 16, scaled to the batch in use (default: 0.015)",
     [](const std::string& value, Flags& flags) {
       return ParseNumber<double>(value, 0, 1000, &flags.training.learning_rate);
     }},
    {"--momentum", "a number from 0 to 1", "of the gradient descent (default: 0.9)",
     [](const std::string& value, Flags& flags) { return ParseNumber<double>(value, 0, 1, &flags.training.momentum); }},
    {"--seed", "a number from 0 to 2^64 - 1", "of the weights and of the order of the digits (default: 1)",
     [](const std::string& value, Flags& flags) {
       return ParseNumber<std::uint64_t>(value, 0, std::numeric_limits<std::uint64_t>::max(), &flags.training.seed);
     }},
    {"--compression", "none, fp16 or bf16", "format in which gradients travel (default: none)",
     [](const std::string& value, Flags& flags) { return ParseCompression(value, &flags.training.compression); }},
    {"--steps", "a number from 0 to 1000000",
     "stop training after so many steps (default: at the end of the last epoch)",
     [](const std::string& value, Flags& flags) {
       return ParseNumber<std::size_t>(value, 0, kMillion, &flags.training.max_steps);
     }},
    {"--checkpoints", "a folder",
     "save the training there after each epoch and at its end, and go on from the last (default: do not)",
     [](const std::string& value, Flags& flags) { return ParsePath(value, &flags.training.checkpoints); }},
    {"--dump-parameters", "a file", "write the trained parameters there, as raw floats (default: do not)",
     [](const std::string& value, Flags& flags) { return ParsePath(value, &flags.dump_parameters); }},
};

const FlagSpec& FindFlag(const std::string& name) {
  for (const FlagSpec& flag : kFlags) {
    if (name == flag.name) return flag;
  }
  throw UsageError("there is no flag \"" + name + "\"; --help lists those there are");
}

}  // namespace

Flags ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help") {
      flags.action = Flags::Action::kShowHelp;
      continue;
    }
    const std::size_t equals = arguments[i].find('=');
    const FlagSpec& flag = FindFlag(arguments[i].substr(0, equals));
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      throw UsageError(std::string(flag.name) + " takes " + flag.takes + ", but nothing follows it");
    }
    const std::string value = equals == std::string::npos ? arguments[++i] : arguments[i].substr(equals + 1);
    if (!flag.set(value, flags))
      throw UsageError(std::string(flag.name) + " takes " + flag.takes + ", not \"" + value + "\"");
  }
  return flags;
}

std::string Usage(const std::string& program) {
  std::ostringstream usage;
  usage << "Trains LeNet-5 on MNIST digits, on all ranks of the job it is started in:\n"
        << "  rondarun -np 2 " << program << " [flags]\n\n"
        << std::left;
  for (const FlagSpec& flag : kFlags) usage << "  " << std::setw(kNameWidth) << flag.name << flag.help << "\n";
  usage << "  " << std::setw(kNameWidth) << "--help"
        << "print this\n";
  return usage.str();
}

}  // namespace lenet
